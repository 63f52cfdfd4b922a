"""A bar for what takes more than two seconds: on standard error, only where somebody looks at a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rg_env.dump import Dump

_PATIENCE = 2.0
"""Seconds before the bar appears."""


@contextmanager
def reading(*dumps: Dump, texts: bool = False) -> Iterator[None]:
    """Show how much of the dumps' files has been read.

    Args:
        dumps: read once by `frames`, and once more, if `texts` is True, by `groups`.
    """
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    from rg_env.dump.chunks import size_of

    kinds = (False, True) if texts else (False,)
    total = sum(size_of(file) for dump in dumps for kind in kinds for file in dump.files_to_read(texts=kind))
    bar = Progress(
        "reading", BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True
    )
    task = bar.add_task("", total=total)
    begin = time.monotonic()

    def watch(count: int) -> None:
        bar.advance(task, count)
        if not bar.live.is_started and time.monotonic() - begin > _PATIENCE:
            bar.start()

    for dump in dumps:
        dump.watch = watch
    try:
        yield
    finally:
        bar.stop()
        for dump in dumps:
            dump.watch = None
