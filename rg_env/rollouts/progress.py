"""What a run has done so far, on standard error: a bar on a terminal, a line per tenth of the run elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rg_env.output import console, print_text
from rg_env.rollouts.endpoint import Reply


@dataclass(slots=True)
class Totals:
    """What has been done so far.

    Attributes:
        failures: requests that failed for good; `last_failure` says why the last one did.
        solved: rollouts with at least `solved_at`.
        reasoning_apart, think_opened: see `Reply`.
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

    def add(self, reply: Reply) -> None:
        if reply.failure is not None:
            self.failures += 1
            self.last_failure = reply.failure
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
    terminal, began = console(stderr=True), time.monotonic()
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("groups, {task.description}"), TimeRemainingColumn())
    bar = Progress(*columns, console=terminal, disable=not terminal.is_terminal)
    task = bar.add_task("waiting for the first responses", total=planned, completed=done)

    def show(totals: Totals) -> None:
        before, finished = int(bar.tasks[0].completed), done + totals.groups
        seconds = max(time.monotonic() - began, 1e-3)
        most = f" of {max_tokens_total:,}" if max_tokens_total is not None else ""
        text = f"{totals.responses / seconds:.1f} responses/s, {totals.tokens:,}{most} tokens"
        if totals.responses:
            text += f", solved {totals.solved / totals.responses:.2f}"
        if totals.failures:
            text += f", {totals.failures} failed"
        bar.update(task, completed=finished, description=text)
        if bar.disable and finished * 10 // planned > before * 10 // planned:
            print_text(f"{finished}/{planned} groups, {text}", stderr=True)

    with bar:
        yield show
