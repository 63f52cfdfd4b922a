"""The panel that a terminal shows while a run is in progress. Pure: from a state to something that Rich draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING

from rich.measure import Measurement
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rg_env.output import cell
from rg_env.terminal.state import RunState
from rg_env.terminal.words import counted, duration, measured, rate, short_path

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult  # noqa: TID251

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-=+*#@"
_FILES = {"rollouts": "success", "FAILED_rollouts": "FAILED", "other_rollouts": "other", "eval_rollouts": "evaluation"}
"""How the panel names the files of the dump."""


@dataclass(frozen=True)
class Curve:
    """A small curve over steps, as wide as there is room, at most one character per step.

    Attributes:
        values: None where nothing was measured.
    """

    values: Sequence[float | None]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.draw(options.max_width, _ASCII if options.ascii_only else _BLOCKS), "cyan", no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, options.max_width)

    def draw(self, width: int, blocks: str = _BLOCKS) -> str:
        """From 0, or the least value if that is lower, to 1, or the largest value if that is higher."""
        means = list(_means(self.values, width))
        known = [value for value in means if value is not None]
        low, high = min([0.0, *known]), max([1.0, *known])
        levels = (None if value is None else round((value - low) / (high - low) * (len(blocks) - 1)) for value in means)
        return "".join(" " if level is None else blocks[level] for level in levels)


def _means(values: Sequence[float | None], width: int) -> Iterator[float | None]:
    """The values, or if there are more than `width`, the means of `width` equal parts."""
    parts = min(width, len(values))
    bounds = [place * len(values) // parts for place in range(parts + 1)] if parts else []
    for start, end in pairwise(bounds):
        known = [value for value in values[start:end] if value is not None]
        yield fmean(known) if known else None


def panel(state: RunState, now: float) -> Panel:
    """The run at a moment.

    Args:
        now: seconds since the epoch.
    """
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    for name, value in _rows(state):
        grid.add_row(name, value)
    if not state.has_ended:
        phase = f"stopping after {state.stopping}" if state.stopping else state.phase
        grid.add_row("now", cell(f"{phase}, {duration(now - state.phase_began)}"))
    title = f"rg-env {state.command}" + (
        f" · {state.model.rsplit('/', 1)[-1]} on {state.device}" if state.model else ""
    )
    return Panel(
        grid,
        title=cell(title),
        title_align="left",
        subtitle=cell(duration(now - state.began)),
        subtitle_align="right",
    )


def _rows(state: RunState) -> Iterator[tuple[str, RenderableType]]:
    if state.resumed_from:
        yield "resumed", f"from step {state.resumed_from}"
    if state.steps:
        left = state.seconds_left
        ahead = f"{duration(left)} left" if left is not None and state.step < state.total else None
        yield state.unit, " · ".join(filter(None, [f"{state.step:,} of {state.total:,}", rate(state), ahead]))
        yield "", ProgressBar(state.total, state.step)
        yield "reward", _value_and_curve([step.reward for step in state.steps])
        yield "solved", _value_and_curve([step.solved for step in state.steps])
        yield "format", _value_and_curve([step.well_formed for step in state.steps])
    if state.evaluations:
        first, last = state.evaluations[0], state.evaluations[-1]
        shown = [first] if first is last else [first, last]
        yield "eval", Text("\n").join(cell(f"after step {step.number}: {measured(step)}") for step in shown)
    if state.files:
        yield "groups", cell(counted({_FILES.get(name, name): count for name, count in state.files.items()}))
    if state.statuses:
        failed = state.statuses.keys() - {"ok", "rejected"}
        yield "scorer", cell(counted(state.statuses), "yellow" if failed else "")
    if state.dump:
        yield "dump", cell(short_path(state.dump))
    if state.log:
        yield "log", cell(short_path(state.log))


def _value_and_curve(values: Sequence[float | None]) -> Table:
    """The last measured value and the curve of all."""
    last = next((value for value in reversed(values) if value is not None), None)
    line = Table.grid(padding=(0, 2), expand=True)
    line.add_column(min_width=5, no_wrap=True)
    line.add_column(ratio=1)
    line.add_row("–" if last is None else f"{last:.3f}", Curve(values))
    return line
