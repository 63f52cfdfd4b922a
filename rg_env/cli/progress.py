"""A spinner for work that takes long, on standard error, only if it is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rg_env.output import console


def spinner(what: str) -> AbstractContextManager[object]:
    """Show what is being done until the block ends."""
    shown = console(stderr=True)
    return shown.status(what) if shown.is_terminal else nullcontext()


def reading(*_: object, frames: int = 0, texts: int = 0) -> AbstractContextManager[object]:
    """Show that dumps are being read."""
    return spinner("reading")


@contextmanager
def late_bar(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """As `spinner`, for work that reports its progress."""
    with spinner(what):
        yield lambda done: None
