"""What an evaluation or collection shows while it runs, and how a signal ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rg_env.base.output import console, print_text
from rg_env.evaluate.outcome import Totals

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def progress(planned: int, done: int, max_tokens_total: int | None) -> Iterator[Callable[[Totals], None]]:
    """Yields a function to call after every group: a bar on a terminal, a line per tenth of the run elsewhere."""
    terminal, began = console(stderr=True), time.monotonic()
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("groups, {task.description}"), TimeRemainingColumn())
    bar = Progress(*columns, console=terminal, disable=not terminal.is_terminal)
    task = bar.add_task("waiting for the first responses", total=planned, completed=done)

    def show(totals: Totals) -> None:
        before, finished = int(bar.tasks[0].completed), done + totals.groups
        seconds = max(time.monotonic() - began, 1e-3)
        most = f" of {max_tokens_total:,}" if max_tokens_total is not None else ""
        text = f"{totals.responses / seconds:.1f} responses/s, {totals.tokens:,}{most} tokens with the prompts"
        if totals.answered:
            text += f", solved {totals.solved / totals.answered:.2f}"
        if totals.failures:
            text += f", {totals.failures} failed"
        bar.update(task, completed=finished, description=text)
        # Where there is no bar, a line for each tenth of the run that this group completes.
        if bar.disable and finished * 10 // planned > before * 10 // planned:
            print_text(f"{finished}/{planned} groups, {text}", stderr=True)

    with bar:
        yield show


async def until_signal(work: Coroutine[Any, Any, None]) -> int | None:
    """Run `work`; a signal cancels it. Returns the signal, or None if it ended by itself."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    received: list[int] = []
    handlers = {signum: signal.getsignal(signum) for signum in _SIGNALS}
    handled = {signum: before for signum, before in handlers.items() if before is not signal.SIG_IGN}  # as nohup does

    def stop(signum: int) -> None:
        received.append(signum)
        task.cancel()
        # The first signal lets the dump be closed. From now on, another one ends the process at once.
        for again in handled:
            loop.remove_signal_handler(again)
            signal.signal(again, lambda number, _: os._exit(128 + number))  # although the disk hangs

    for signum in handled:
        loop.add_signal_handler(signum, stop, signum)
    try:
        await task
    except asyncio.CancelledError:
        if not received:  # somebody else canceled this
            raise
    finally:
        for signum, before in handled.items():
            loop.remove_signal_handler(signum)
            signal.signal(signum, before)
    return received[0] if received else None
