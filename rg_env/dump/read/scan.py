"""A dump as a polars LazyFrame.

Invariant: collecting gives the rows of `Dump.frames`, and reads no column that the query does not need.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import polars as pl
from polars.io.plugins import register_io_source

from rg_env.dump.read import frames

if TYPE_CHECKING:
    from rg_env.dump.read.dump import Dump


def scan(dump: Dump, *, texts: bool, all_attempts: bool) -> pl.LazyFrame:
    """See `Dump.scan`."""
    schema = frames.TEXT_SCHEMA if texts else frames.SCHEMA

    def read(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        shown = list(schema) if with_columns is None else with_columns
        asked = [] if predicate is None else predicate.meta.root_names()
        wanted = [name for name in schema if name in {*shown, *asked}]
        left = n_rows
        for frame in dump.frames(wanted, texts=texts, all_attempts=all_attempts):
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame.select(shown)
            if left == 0:
                return

    return register_io_source(read, schema=pl.Schema(schema))
