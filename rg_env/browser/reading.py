"""Background work of the application: indexing groups and searching their texts in threads.

Invariant: a thread does not touch the user interface. It posts messages that name the dump or the query that they
belong to, so that outdated ones can be ignored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl
from textual.message import Message
from textual.worker import get_current_worker

from rg_env.browser.index import FOUND_BY, SCHEMA, index_rows, last_attempts_only
from rg_env.browser.query import Query
from rg_env.dump import Dump
from rg_env.dump.files import DumpFile
from rg_env.errors import RGEnvError

PAUSE = 0.25
"""Seconds between two messages with rows."""
Post = Callable[[Message], object]


class Read(Message):
    """More rows of the index or, if `at_end`, all rows without those that a later attempt replaced."""

    def __init__(self, dump: Dump, rows: pl.DataFrame, share: float, at_end: bool) -> None:
        super().__init__()
        self.dump, self.rows, self.share, self.at_end = dump, rows, share, at_end


class Found(Message):
    """More rows whose texts match a query."""

    def __init__(self, query: Query, rows: pl.DataFrame, at_end: bool) -> None:
        super().__init__()
        self.query, self.rows, self.at_end = query, rows, at_end


class Failed(Message):
    """The dump cannot be read."""

    def __init__(self, error: RGEnvError) -> None:
        super().__init__()
        self.error = error


def read(dump: Dump, post: Post) -> None:
    """Post the rows of a dump: the first ones immediately, the others periodically."""
    worker = get_current_worker()
    everything: list[pl.DataFrame] = [pl.DataFrame(schema=SCHEMA)]
    posted, last = 0, 0.0
    try:
        for chunk in index_rows(dump):
            everything.append(chunk.rows)
            if worker.is_cancelled:
                return
            if time.monotonic() - last > PAUSE:
                post(Read(dump, pl.concat(everything[posted:]), chunk.done / max(1, chunk.total), at_end=False))
                posted, last = len(everything), time.monotonic()
        post(Read(dump, last_attempts_only(dump, pl.concat(everything)), 1.0, at_end=True))
    except RGEnvError as error:
        post(Failed(error))


def search(query: Query, files: Sequence[DumpFile], rows: pl.DataFrame, post: Post) -> None:
    """Post the rows whose texts match."""
    worker, last = get_current_worker(), time.monotonic()
    found: list[int] = []
    for place, row in enumerate(rows.select(FOUND_BY).iter_rows(named=True)):
        if worker.is_cancelled:
            return
        if _matches(query, files, row):
            found.append(place)
        if time.monotonic() - last > PAUSE:
            post(Found(query, rows[found], at_end=False))
            found, last = [], time.monotonic()
    post(Found(query, rows[found], at_end=True))


def _matches(query: Query, files: Sequence[DumpFile], row: Mapping[str, Any]) -> bool:
    try:
        return query.group_of(files, row) is not None
    except RGEnvError:  # the file has changed; a reload shows it
        return False
