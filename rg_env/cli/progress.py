"""A spinner for work that takes long, on standard error, only if it is a terminal."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from rg_env.output import console


def spinner(what: str) -> AbstractContextManager[object]:
    """Show what is being done until the block ends."""
    shown = console(stderr=True)
    return shown.status(what) if shown.is_terminal else nullcontext()
