"""What a run has done so far, on standard error: a bar on a terminal, a line per tenth of the run elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rg_env.output import console, print_text
from rg_env.rollouts.endpoint import Failure, Response


@dataclass(slots=True)
class Totals:
    """What has been done so far.

    Attributes:
        failures: requests that failed for good; `last_failure` says why the last one did.
        solved: rollouts with at least `solved_at`.
        reasoning_apart, think_opened: see `Response`.
        uncounted: responses whose tokens the server did not count.
    """

    groups: int = 0
    responses: int = 0
    solved: int = 0
    failures: int = 0
    last_failure: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0
    reasoning_apart: int = 0
    think_opened: int = 0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def add(self, reply: Response | Failure) -> None:
        if isinstance(reply, Failure):
            self.failures += 1
            self.last_failure = reply.detail
            return
        self.responses += 1
        self.prompt_tokens += reply.prompt_tokens or 0
        self.completion_tokens += reply.completion_tokens or 0
        self.uncounted += reply.completion_tokens is None
        self.reasoning_apart += reply.reasoning_apart
        self.think_opened += reply.think_opened


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
