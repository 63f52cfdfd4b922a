"""What is printed when a run has ended: what was learned, where the dump is, how to read it, how to continue."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rg_env.terminal.state import RunState
from rg_env.terminal.supervisor import Ended
from rg_env.terminal.words import duration, short_path

_MEASURES = {"solve rate": "solve_rate", "base score": "mean_base_score", "format rate": "format_rate"}


@dataclass(frozen=True)
class Learned:
    """Values before and after training, each with its confidence interval.

    Attributes:
        before, after: what they were measured on.
        rows: name, value before, value after.
    """

    before: str
    after: str
    rows: Sequence[tuple[str, str, str]]

    def lines(self) -> Iterator[str]:
        """As a small table."""
        cells = [("", self.before, self.after), *self.rows]
        widths = [max(len(row[place]) for row in cells) for place in range(3)]
        for row in cells:
            yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def learned(state: RunState) -> Learned | None:
    """From the dump of the run: the first and the last evaluation, or the first and the last quarter of the steps."""
    if state.dump is None or state.run_id is None:
        return None
    from rg_env.analysis import statistics
    from rg_env.dump import open_run
    from rg_env.dump.files import list_files

    dump = open_run(*(file.path for file in list_files(Path(state.dump), state.run_id)))
    if state.evaluations:
        rows = dump.where(["phase=eval"]).scan()
        steps = list(statistics(rows, "step", solved_at=state.solved_at).iter_rows(named=True))
        if len(steps) < 2:
            return None
        first, last = steps[0], steps[-1]
        found = [(name, _interval(first, column), _interval(last, column)) for name, column in _MEASURES.items()]
        return Learned(f"before (step {first['step']})", f"after (step {last['step']})", found)
    rows = dump.where(["phase=train"]).scan()
    total = statistics(rows, "phase", solved_at=state.solved_at).row(0, named=True)
    if total["solve_rate_change"] is None:
        return None
    values = _interval(total, "solve_rate_first"), _interval(total, "solve_rate_last")
    return Learned("first quarter of the steps", "last quarter", [("solve rate", *values)])


def last_lines(state: RunState, ended: Ended, args: Sequence[str], now: float) -> Iterator[str]:
    """The lines to print after a run.

    Args:
        args: of `rg-env train`.
        now: seconds since the epoch.
    """
    if ended.exit_code == 0:
        yield f"trained to step {state.step} in {duration(now - state.began)}"
        if found := learned(state):
            yield from ("", *found.lines(), "")
    if state.dump is not None and state.steps:
        folder = shlex.quote(short_path(state.dump))
        yield f"dump: {folder}"
        yield f"  rg-env dumps stats {folder} --by step    # what was learned"
        yield f"  rg-env dumps show {folder}               # browse the groups"
    if state.log is not None:
        yield f"log: {short_path(state.log)}"
    if ended.exit_code != 0:
        yield how_it_stopped(state, ended, args)


def how_it_stopped(state: RunState, ended: Ended, args: Sequence[str]) -> str:
    """Where a run stopped, and how to continue."""
    why = f"stopped by {signal.Signals(ended.signum).name}" if ended.signum else "failed"
    at = f"after {state.unit} {state.step} of {state.total}" if state.steps else f"while {state.phase}"
    if state.command != "train":
        return f"{why} {at}; the same command with --resume continues"
    if state.checkpoint is None:
        missing = "no checkpoint to continue from (trainer.ckpt_interval)" if state.steps else "no step was finished"
        return f"{why} {at}; {missing}"
    resume = [*(arg for arg in args if not arg.startswith("trainer.resume_mode=")), "trainer.resume_mode=latest"]
    return f"{why} {at}; to continue from step {state.checkpoint}: {shlex.join(['rg-env', 'train', *resume])}"


def _interval(row: dict[str, Any], name: str) -> str:
    value, low, high = row[name], row[f"{name}_low"], row[f"{name}_high"]
    if value is None:
        return "–"
    return f"{value:.3f}" if low is None else f"{value:.3f} [{low:.3f}, {high:.3f}]"
