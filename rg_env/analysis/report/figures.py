"""The statistics shown in the report, from the ledger.

Invariant: rates, means and their intervals are those of `statistics`, for headline, tasks and curves; if steps are
merged for a chart, every rollout still counts once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from rg_env.analysis.sample import Sample
from rg_env.analysis.stats import statistics
from rg_env.dump.read.frames import GROUP_INDEX
from rg_env.scoring.types import Status, Violation

Columns = dict[str, list[Any]]
"""A table by columns, as the page expects it."""

MAX_POINTS = 200
"""Maximum number of points of a curve; neighboring steps are merged if there are more."""

MAX_TREND_POINTS = 15
MAX_HEAT_COLUMNS = 60
LENGTH_BARS = 40

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
        trend: the same with more steps merged, so that the intervals are narrow enough.
        heat: a row per task and point: `task`, `step`, `last_step`, `solve_rate`, `groups`.
        trouble: a row per point and violation or failed status that occurs: `step`, `last_step`, `what` (a column of
            `statistics`), `share` of rollouts.
        levels: a row per task and point: `task`, `step`, `last_step`, `complexity` (mean c of the groups), `groups`;
            empty without levels.
        moves: a row per move of a level: `task`, `step`, `before`, `after`, `reason`.
        lengths: a row per bar: `from`, `to`, `right`, `wrong`: shares of the correct and of the wrong rollouts.
        length_unit: `tokens`, or `characters` if the dump has no token counts.
    """

    run_id: str
    phase: str
    headline: dict[str, Any]
    tasks: Columns
    steps: Columns
    trend: Columns
    heat: Columns
    trouble: Columns
    levels: Columns
    moves: Columns
    lengths: Columns
    length_unit: str


def sections(
    rollouts: pl.DataFrame, characters: pl.DataFrame, moves: pl.DataFrame, *, solved_at: float
) -> list[Section]:
    """The statistics of every run and phase, in the order run, train, eval.

    Args:
        rollouts: those of `sample_of(dump)`.
        moves: those of `dump.levels_frame()`.
        characters: see `report.sample.Sample`; replaces token counts if the dump has none.
        solved_at: a rollout is correct if its base score is at least this, in [0, 1].
    """
    by_phase = statistics(Sample(rollouts), "phase", solved_at=solved_at)
    by_task = statistics(Sample(rollouts), "task", solved_at=solved_at)
    made = []
    for headline in by_phase.sort("run_id", pl.col("phase") != "train", "phase").iter_rows(named=True):
        mine = (pl.col("run_id") == headline["run_id"]) & (pl.col("phase") == headline["phase"])
        of_phase = rollouts.filter(mine)
        counted = of_phase["response_tokens"].count() > 0
        if not counted:
            of_phase = _in_characters(of_phase, characters)
        moved = moves.filter(pl.lit(headline["phase"] == "train"), run_id=headline["run_id"])
        unit = "tokens" if counted else "characters"
        made.append(_section(headline, by_task.filter(mine), of_phase, moved, solved_at, unit))
    return made


def leaderboard(rollouts: pl.DataFrame, *, solved_at: float) -> list[dict[str, Any]]:
    """A row per run and phase, the best first: `run_id`, `phase`, `groups`, `solve_rate` with its interval,
    `mean_base_score`, and `categories`, the solve rate of each. Empty for a single run.
    """
    if rollouts["run_id"].n_unique() < 2:
        return []
    sample = Sample(rollouts)
    overall = statistics(sample, "phase", solved_at=solved_at)
    of_run: dict[tuple[str, str], dict[str, float]] = {}
    for row in statistics(sample, "category", solved_at=solved_at).iter_rows(named=True):
        of_run.setdefault((row["run_id"], row["phase"]), {})[row["category"]] = row["solve_rate"]
    names = ("run_id", "phase", "groups", "solve_rate", "solve_rate_low", "solve_rate_high", "mean_base_score")
    best = overall.sort("phase", pl.col("solve_rate"), descending=[False, True], nulls_last=True, maintain_order=True)
    return [
        {name: row[name] for name in names} | {"categories": of_run[row["run_id"], row["phase"]]}
        for row in best.iter_rows(named=True)
    ]


def _in_characters(rollouts: pl.DataFrame, characters: pl.DataFrame) -> pl.DataFrame:
    places = rollouts.with_columns(place=pl.int_range(pl.len()).over(GROUP_INDEX))
    joined = places.join(characters, on=[GROUP_INDEX, "place"], how="left", maintain_order="left")
    return joined.with_columns(response_tokens="characters").drop("place", "characters")


def _section(
    headline: dict[str, Any],
    by_task: pl.DataFrame,
    rollouts: pl.DataFrame,
    moves: pl.DataFrame,
    solved_at: float,
    length_unit: str,
) -> Section:
    rollouts = rollouts.with_columns(right=(pl.col("base_score") >= solved_at).fill_null(False))
    by_point = _by_point(rollouts, MAX_POINTS, solved_at)
    return Section(
        run_id=headline["run_id"],
        phase=headline["phase"],
        headline=headline,
        tasks=_columns(by_task.drop("run_id", "phase")),
        steps=_columns(_curves(by_point)),
        trend=_columns(_curves(_by_point(rollouts, MAX_TREND_POINTS, solved_at))),
        heat=_columns(_heat(_in_points(rollouts, MAX_HEAT_COLUMNS))),
        trouble=_columns(_trouble(by_point)),
        levels=_columns(_levels(_in_points(rollouts, MAX_HEAT_COLUMNS))),
        moves=_columns(moves.select("task", "step", "before", "after", "reason").sort("step", "task")),
        lengths=_columns(_histogram(rollouts)),
        length_unit=length_unit,
    )


def _in_points(rollouts: pl.DataFrame, most: int) -> pl.DataFrame:
    """Rollouts with a step, merged into at most `most` points; `step` and `last_step` are the ends of a point."""
    rank = pl.col("step").rank("dense") - 1
    width = -(-rollouts["step"].drop_nulls().n_unique() // most) or 1
    return (
        rollouts.drop_nulls("step")
        .with_columns(point=rank // width)
        .with_columns(step=pl.col("step").min().over("point"), last_step=pl.col("step").max().over("point"))
    )


def _by_point(rollouts: pl.DataFrame, most: int, solved_at: float) -> pl.DataFrame:
    """`statistics` for each point, with `last_step`."""
    points = _in_points(rollouts, most)
    ends = points.select("step", "last_step").unique()
    return statistics(Sample(points), "step", solved_at=solved_at).join(ends, on="step")


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
        .agg(solve_rate=pl.col("right").mean(), groups=pl.col(GROUP_INDEX).n_unique())
        .sort("task", "step")
    )


def _levels(points: pl.DataFrame) -> pl.DataFrame:
    groups = points.filter(pl.col("complexity").is_not_null()).unique(GROUP_INDEX)
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
        for kind, which in (("right", pl.col("right")), ("wrong", ~pl.col("right")))
    }
    return (
        known.group_by((length // width * width).alias("from"))
        .agg(**shares)
        .with_columns(to=pl.col("from") + width)
        .sort("from")
    )


def _columns(frame: pl.DataFrame) -> Columns:
    return frame.to_dict(as_series=False)
