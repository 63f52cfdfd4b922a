"""The statistics shown in the report, from the ledger.

Invariant: rates, means and their intervals are those of `statistics`, for headline, tasks and curves; if steps are
merged for a chart, every rollout still counts once. Evaluations are never merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from rg_env.analysis.report.groups import Group
from rg_env.analysis.stats import GROUP, Measured, statistics, with_rollouts
from rg_env.dump import Phase
from rg_env.scoring.types import Status, Violation

Columns = dict[str, list[Any]]
"""A table by columns, as the page expects it."""

MAX_POINTS = 40
"""Maximum number of points of a chart; neighboring training steps are merged if there are more."""
LENGTH_BARS = 40
WORST_TASKS = 5
EXAMPLES = 3
"""Failed rollouts shown of each of the worst tasks."""

_CURVES = ("mean_reward", "solve_rate", "format_rate", "no_signal")
_TROUBLE = [f"violation_{violation.value}" for violation in Violation] + [
    f"status_{status.value}" for status in Status if status.is_counted and status is not Status.OK
]


@dataclass(frozen=True)
class Section:
    """The statistics of one phase of one run.

    Attributes:
        headline: the row of `statistics(by="phase")`.
        tasks: `statistics(by="task")`.
        steps: a row per point: `step`, `last_step` (equal to `step` unless steps were merged), `groups`,
            `mean_reward`, `solve_rate`, `format_rate` and `no_signal` with their intervals (`…_low`, `…_high`),
            `length_right` and `length_wrong` (medians). Empty if the dump has no steps.
        heat: a row per task and point: `task`, `step`, `last_step`, `solve_rate`, `groups`.
        trouble: a row per point and violation or failed status that occurs: `step`, `last_step`, `what` (a column of
            `statistics`), `share` of rollouts.
        levels: a row per task and point: `task`, `step`, `last_step`, `complexity` (mean c of the groups), `groups`;
            empty without levels.
        moves: a row per move of a level: `task`, `step`, `before`, `after`, `reason`.
        lengths: a row per bar: `from`, `to` (tokens), `right`, `wrong`: shares of the correct and of the wrong
            rollouts. Empty if the dump has no token counts.
    """

    run_id: str
    phase: str
    headline: dict[str, Any]
    tasks: Columns
    steps: Columns
    heat: Columns
    trouble: Columns
    levels: Columns
    moves: Columns
    lengths: Columns


def sections(found: Measured, moves: pl.DataFrame) -> list[Section]:
    """The statistics of every run and phase, in the order run, train, eval.

    Args:
        found: what was measured of the dump.
        moves: those of `dump.levels_frame()`.
    """
    by_task = statistics(found, "task")
    headlines = statistics(found, "phase").sort("run_id", pl.col("phase") != "train", "phase")
    made = []
    for headline in headlines.iter_rows(named=True):
        run_id, phase = headline["run_id"], headline["phase"]
        mine = (pl.col("run_id") == run_id) & (pl.col("phase") == phase)
        rollouts = found.rollouts.filter(mine)
        points = _in_points(rollouts, found.rollouts.height if is_evaluation(phase) else MAX_POINTS)
        by_point = _by_point(found, points)
        moved = moves.filter(pl.lit(phase == "train"), run_id=run_id)
        made.append(
            Section(
                run_id=run_id,
                phase=phase,
                headline=headline,
                tasks=_columns(by_task.filter(mine).drop("run_id", "phase")),
                steps=_columns(_curves(by_point)),
                heat=_columns(_heat(points)),
                trouble=_columns(_trouble(by_point)),
                levels=_columns(_levels(points)),
                moves=_columns(moved.select("task", "step", "before", "after", "reason").sort("step", "task")),
                lengths=_columns(_histogram(rollouts)),
            )
        )
    return made


def is_evaluation(phase: str) -> bool:
    """Whether it is the phase of evaluations, of any environment (`eval`, `eval gsm8k`)."""
    return phase.split(" ")[0] == Phase.EVAL.value


def worst_tasks(section: Section, shown: Sequence[Group], solved_at: float) -> Iterator[dict[str, Any]]:
    """The tasks with the lowest solve rate at the end of training, the worst first, without solved ones.

    Each has `task`, `solve_rate` and `examples`: the numbers of group and rollout of the worst rollouts of the latest
    groups that have a text and a rollout below `solved_at`.
    """
    columns = (section.tasks[name] for name in ("task", "solve_rate", "solve_rate_last"))
    at_end = [(overall if last is None else last, task) for task, overall, last in zip(*columns, strict=True)]
    for rate, task in sorted(at_end)[:WORST_TASKS]:
        if rate < 1:
            examples = _failures(shown, (section.run_id, section.phase, task), solved_at)
            yield {"task": task, "solve_rate": rate, "examples": list(examples)}


def _failures(shown: Sequence[Group], wanted: tuple[str, str, str], solved_at: float) -> Iterator[tuple[int, int]]:
    found = 0
    for number in reversed(range(len(shown))):
        group = shown[number]
        if (group["run_id"], group["phase"], group["task"]) != wanted or "prompt" not in group or found == EXAMPLES:
            continue
        scores = [rollout["base_score"] or 0.0 for rollout in group["rollouts"]]  # null: not finite
        if min(scores) < solved_at:
            found += 1
            yield number, scores.index(min(scores))


def _in_points(rollouts: pl.DataFrame, most: int) -> pl.DataFrame:
    """Rollouts with a step, merged into at most `most` points; `step` and `last_step` are the ends of a point."""
    rank = pl.col("step").rank("dense") - 1
    width = -(-rollouts["step"].drop_nulls().n_unique() // most) or 1
    return (
        rollouts.drop_nulls("step")
        .with_columns(point=rank // width)
        .with_columns(step=pl.col("step").min().over("point"), last_step=pl.col("step").max().over("point"))
    )


def _by_point(found: Measured, points: pl.DataFrame) -> pl.DataFrame:
    """`statistics` for each point, with `last_step`."""
    ends = points.select("step", "last_step").unique()
    return statistics(with_rollouts(found, points.drop("last_step", "point")), "step").join(ends, on="step")


def _curves(by_point: pl.DataFrame) -> pl.DataFrame:
    return by_point.select(
        "step",
        "last_step",
        "groups",
        *(f"{name}{bound}" for name in _CURVES for bound in ("", "_low", "_high")),
        length_right="tokens_right_p50",
        length_wrong="tokens_wrong_p50",
    ).sort("step")


def _heat(points: pl.DataFrame) -> pl.DataFrame:
    return (
        points.group_by(pl.col("task").cast(pl.String), "step", "last_step")
        .agg(solve_rate=pl.col("solved").mean(), groups=pl.col(GROUP).n_unique())
        .sort("task", "step")
    )


def _levels(points: pl.DataFrame) -> pl.DataFrame:
    groups = points.filter(pl.col("complexity").is_not_null()).unique(GROUP)
    return (
        groups.group_by(pl.col("task").cast(pl.String), "step", "last_step")
        .agg(pl.col("complexity").mean(), groups=pl.len())
        .sort("task", "step")
    )


def _trouble(by_point: pl.DataFrame) -> pl.DataFrame:
    occurring = [name for name in _TROUBLE if by_point[name].sum()]
    return by_point.unpivot(occurring, index=["step", "last_step"], variable_name="what", value_name="share").sort(
        "step", "what"
    )


def _histogram(rollouts: pl.DataFrame) -> pl.DataFrame:
    length = pl.col("response_tokens")
    known = rollouts.drop_nulls("response_tokens")
    longest = known.select(length.max().fill_null(0)).item()
    width = max(1, -(-longest // LENGTH_BARS))
    shares = {
        kind: which.sum() / pl.lit(known.select(which.sum()).item() or None)
        for kind, which in (("right", pl.col("solved")), ("wrong", ~pl.col("solved")))
    }
    return (
        known.group_by((length // width * width).alias("from"))
        .agg(**shares)
        .with_columns(to=pl.col("from") + width)
        .sort("from")
    )


def _columns(frame: pl.DataFrame) -> Columns:
    return frame.to_dict(as_series=False)
