"""A progress bar for work of more than two seconds, on standard error, only if it is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rg_env.output import console

if TYPE_CHECKING:
    from rg_env.dump import Dump

_DELAY = 2.0
"""Seconds before a bar appears."""

Advance = Callable[[int], None]


@contextmanager
def late_bar(what: str, total: int | None) -> Iterator[Advance]:
    """Show a progress bar if the work takes long.

    Args:
        what: the description.
        total: the total amount of work in any unit; None if unknown.

    Yields:
        a function to call with the work done since the last call.
    """
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console(stderr=True), transient=True)
    task = bar.add_task(what, total=total)
    shown_from = time.monotonic() + _DELAY

    def advance(done: int) -> None:
        bar.advance(task, done)
        if not bar.live.is_started and time.monotonic() >= shown_from:
            bar.start()

    try:
        yield advance
    finally:
        bar.stop()


@contextmanager
def reading(*dumps: Dump, frames: int = 0, texts: int = 0) -> Iterator[None]:
    """Show how much of the dumps' files has been read.

    Args:
        frames: how often the files of `Dump.frames` will be read.
        texts: how often the files with texts will be read.
    """
    from rg_env.dump.read.chunks import size_of

    files = [file for dump in dumps for file in frames * dump.files_to_read() + texts * dump.files_to_read(texts=True)]
    total = sum(map(size_of, files))
    with late_bar("reading", total) as advance:
        for dump in dumps:
            dump.watch = advance
        try:
            yield
        finally:
            for dump in dumps:
                dump.watch = None
