"""A bar for work that takes longer than a person waits without asking."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

_PATIENCE = 2.0
"""Seconds before a bar appears."""

Advance = Callable[[int], None]


@contextmanager
def late_bar(what: str, total: int | None) -> Iterator[Advance]:
    """A bar on standard error, which appears after two seconds and only on a terminal.

    Args:
        what: what is being done.
        total: the whole work, in any unit; None where nobody knows.

    Yields:
        a function to call with the work done since the last call.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task(what, total=total)
    shown_from = time.monotonic() + _PATIENCE
    shown = False

    def advance(done: int) -> None:
        nonlocal shown
        if not shown and time.monotonic() >= shown_from:
            shown = True
            bar.start()
        bar.advance(task, done)

    try:
        yield advance
    finally:
        if shown:
            bar.stop()
