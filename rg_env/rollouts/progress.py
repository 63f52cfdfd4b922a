"""Progress of a run against an endpoint: a bar on a terminal, a line per tenth of the run elsewhere.

Both go to standard error.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rg_env.output import console, print_text
from rg_env.rollouts.run import Totals


@dataclass(frozen=True)
class Prices:
    """What a million tokens of prompts and of responses cost, in any currency; None: unknown."""

    prompt: float | None = None
    response: float | None = None

    def cost(self, totals: Totals) -> float | None:
        """The cost so far; None without a price."""
        if self.prompt is None and self.response is None:
            return None
        spent = totals.prompt_tokens * (self.prompt or 0) + totals.completion_tokens * (self.response or 0)
        return spent / 1e6


@contextmanager
def showing_progress(
    planned: int, done: int, prices: Prices, max_tokens_total: int | None
) -> Iterator[Callable[[Totals], None]]:
    """Yields a function to call after every group.

    Args:
        planned: groups in the whole run; `done`: how many of them earlier attempts have finished.
    """
    began = time.monotonic()

    def describe(totals: Totals) -> str:
        seconds = max(time.monotonic() - began, 1e-3)
        parts = [f"{totals.responses / seconds:.1f} responses/s", f"{totals.tokens:,} tokens"]
        if max_tokens_total is not None:
            parts[-1] += f" of {max_tokens_total:,}"
        if (cost := prices.cost(totals)) is not None:
            parts.append(f"cost {cost:.2f}")
        if totals.responses:
            parts.append(f"solved {totals.solved / totals.responses:.2f}")
        if totals.failures:
            parts.append(f"{totals.failures} failed")
        return ", ".join(parts)

    with _bar(planned, done, describe) if sys.stderr.isatty() else _lines(planned, done, describe) as report:
        yield report


@contextmanager
def _bar(planned: int, done: int, describe: Callable[[Totals], str]) -> Iterator[Callable[[Totals], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("groups, {task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True)) as bar:
        task = bar.add_task("waiting for the first responses", total=planned, completed=done)
        yield lambda totals: bar.update(task, completed=done + totals.groups, description=describe(totals))


@contextmanager
def _lines(planned: int, done: int, describe: Callable[[Totals], str]) -> Iterator[Callable[[Totals], None]]:
    shown = done * 10 // planned

    def report(totals: Totals) -> None:
        nonlocal shown
        finished = done + totals.groups
        if (tenth := finished * 10 // planned) > shown:
            shown = tenth
            print_text(f"{finished}/{planned} groups, {describe(totals)}", stderr=True)

    yield report
