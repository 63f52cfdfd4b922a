"""A bar for what takes more than two seconds: on standard error, only where somebody looks at a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rg_env.dump import Dump

_PATIENCE = 2.0
"""Seconds before a bar appears."""

Advance = Callable[[int], None]


@contextmanager
def late_bar(what: str, total: int | None) -> Iterator[Advance]:
    """A bar for work whose amount is known, or not.

    Args:
        what: what is being done.
        total: the whole work, in any unit; None where nobody knows.

    Yields:
        a function to call with the work done since the last call.
    """
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=total)
    shown_from = time.monotonic() + _PATIENCE

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
        frames: how many times the files of `Dump.frames` are going to be read.
        texts: how many times those that hold texts.
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
