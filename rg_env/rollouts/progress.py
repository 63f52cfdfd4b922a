"""Progress of a run: a bar on a terminal, a line per tenth of the run elsewhere, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rg_env.output import console, print_text
from rg_env.rollouts.run import Totals


@contextmanager
def showing_progress(planned: int, done: int, max_tokens_total: int | None) -> Iterator[Callable[[Totals], None]]:
    """Yields a function to call after every group.

    Args:
        planned: groups in the whole run; `done`: how many of them earlier attempts have finished.
    """
    began, shown = time.monotonic(), done * 10 // planned

    def describe(totals: Totals) -> str:
        seconds = max(time.monotonic() - began, 1e-3)
        most = f" of {max_tokens_total:,}" if max_tokens_total is not None else ""
        parts = [f"{totals.responses / seconds:.1f} responses/s", f"{totals.tokens:,}{most} tokens"]
        if totals.responses:
            parts.append(f"solved {totals.solved / totals.responses:.2f}")
        if totals.failures:
            parts.append(f"{totals.failures} failed")
        return ", ".join(parts)

    def line(totals: Totals) -> None:
        nonlocal shown
        finished = done + totals.groups
        if (tenth := finished * 10 // planned) > shown:
            shown = tenth
            print_text(f"{finished}/{planned} groups, {describe(totals)}", stderr=True)

    if not sys.stderr.isatty():
        yield line
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("groups, {task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True)) as bar:
        task = bar.add_task("waiting for the first responses", total=planned, completed=done)
        yield lambda totals: bar.update(task, completed=done + totals.groups, description=describe(totals))
