"""The figures of the report, from the ledger.

Invariant: headline and per-task figures are those of `statistics`, not a second computation; where steps are put
together for a chart, every rollout still counts once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from rg_env.analysis.stats import statistics
from rg_env.scoring.types import Status

if TYPE_CHECKING:
    from rg_env.dump import Dump

Columns = dict[str, list[Any]]
"""A table by columns, as the page reads it."""

MAX_POINTS = 200
"""Points of a curve; of more steps, neighbours are put together."""

MAX_HEAT_COLUMNS = 60
LENGTH_BARS = 40


@dataclass(frozen=True)
class Section:
    """What the page shows of one phase of one run.

    Attributes:
        headline: the row of `statistics(by="phase")`.
        tasks: `statistics(by="task")`.
        steps: a row per point of the curves: `step`, `last_step` (equal to `step` unless steps were put together),
            `groups`, `mean_reward`, `mean_base_score`, `solve_rate`, `format_rate`, `no_signal`, `length_right`,
            `length_wrong` (medians). Empty where the record has no steps.
        heat: a row per task and point: `task`, `step`, `last_step`, `solve_rate`, `groups`.
        trouble: a row per point and violation or failed status that occurs: `step`, `last_step`, `what`, `share` of
            rollouts.
        lengths: a row per bar: `from`, `to`, `right`, `wrong`, shares of the right and of the wrong rollouts.
        length_percentiles: rows `right` and `wrong`: `kind`, `rollouts`, `p10`, `p25`, `p50`, `p75`, `p90`.
        length_unit: `tokens`, or `characters` where the record has no token counts.
    """

    run_id: str
    phase: str
    headline: dict[str, Any]
    tasks: Columns
    steps: Columns
    heat: Columns
    trouble: Columns
    lengths: Columns
    length_percentiles: Columns
    length_unit: str


def sections(dump: Dump, frame: pl.DataFrame, characters: pl.DataFrame, *, solved_at: float) -> list[Section]:
    """The figures of every run and phase, in the order run, train, eval.

    Args:
        dump: from `open_run`.
        frame: its `ledger_frame()`.
        characters: `group_id`, `repetition`, `characters` of the responses whose text is at hand; stands in for token
            counts where the record has none.
        solved_at: a rollout is right when its base score is at least this, in [0, 1].
    """
    by_phase = statistics(dump, "phase", solved_at=solved_at)
    by_task = statistics(dump, "task", solved_at=solved_at)
    frame = frame.with_columns(right=pl.col("base_score") >= solved_at).join(
        characters, on=["group_id", "repetition"], how="left", maintain_order="left"
    )
    made = []
    for headline in by_phase.sort("run_id", pl.col("phase") != "train", "phase").iter_rows(named=True):
        run_id, phase = headline["run_id"], headline["phase"]
        mine = (pl.col("run_id") == run_id) & (pl.col("phase") == phase)
        made.append(_section(headline, by_task.filter(mine), frame.filter(mine)))
    return made


def _section(headline: dict[str, Any], by_task: pl.DataFrame, rollouts: pl.DataFrame) -> Section:
    counted = rollouts["response_tokens"].count() > 0
    rollouts = rollouts.with_columns(length=pl.col("response_tokens" if counted else "characters").cast(pl.Float64))
    curve = _in_points(rollouts, MAX_POINTS)
    heat = _in_points(rollouts, MAX_HEAT_COLUMNS)
    return Section(
        run_id=headline["run_id"],
        phase=headline["phase"],
        headline=headline,
        tasks=_columns(by_task.drop("run_id", "phase")),
        steps=_columns(_curves(curve)),
        heat=_columns(
            heat.group_by("task", "step", "last_step")
            .agg(solve_rate=pl.col("right").mean(), groups=pl.col("group_id").n_unique())
            .sort("task", "step")
        ),
        trouble=_columns(_trouble(curve)),
        lengths=_columns(_histogram(rollouts)),
        length_percentiles=_columns(_percentiles(rollouts)),
        length_unit="tokens" if counted else "characters",
    )


def _in_points(rollouts: pl.DataFrame, most: int) -> pl.DataFrame:
    """Rollouts that belong to a step, with `step` and `last_step` as the ends of its point: at most `most` points."""
    rank = pl.col("step").rank("dense") - 1
    width = -(-rollouts["step"].drop_nulls().n_unique() // most) or 1
    return (
        rollouts.drop_nulls("step")
        .with_columns(point=rank // width)
        .with_columns(step=pl.col("step").min().over("point"), last_step=pl.col("step").max().over("point"))
    )


def _curves(rollouts: pl.DataFrame) -> pl.DataFrame:
    return (
        rollouts.group_by("step", "last_step")
        .agg(
            pl.col("reward").mean().alias("mean_reward"),
            pl.col("base_score").mean().alias("mean_base_score"),
            solve_rate=pl.col("right").mean(),
            format_rate=pl.col("violation").is_null().mean(),
            groups=pl.col("group_id").n_unique(),
            no_signal=pl.col("no_signal").filter(pl.col("group_id").is_first_distinct()).mean(),
            length_right=pl.col("length").filter("right").median(),
            length_wrong=pl.col("length").filter(~pl.col("right")).median(),
        )
        .sort("step")
    )


def _trouble(rollouts: pl.DataFrame) -> pl.DataFrame:
    """Shares of violations and of statuses other than ok, 0 where one that occurs elsewhere does not occur."""
    failed = pl.when(pl.col("status") != Status.OK.value).then(pl.lit("scorer: ") + pl.col("status"))
    marked = rollouts.with_columns(what=pl.coalesce("violation", failed))
    points = marked.group_by("step", "last_step").agg(rollouts=pl.len())
    kinds = marked.select("what").drop_nulls().unique()
    found = marked.drop_nulls("what").group_by("step", "what").agg(found=pl.len())
    return (
        points.join(kinds, how="cross")
        .join(found, on=["step", "what"], how="left")
        .select("step", "last_step", "what", share=pl.col("found").fill_null(0) / pl.col("rollouts"))
        .sort("step", "what")
    )


def _histogram(rollouts: pl.DataFrame) -> pl.DataFrame:
    known = rollouts.drop_nulls("length")
    longest = known["length"].max()
    width = max(1, -(-int(longest) // LENGTH_BARS)) if isinstance(longest, float) else 1
    shares = {
        kind: which.sum() / pl.lit(known.select(which.sum()).item() or None)
        for kind, which in (("right", pl.col("right")), ("wrong", ~pl.col("right")))
    }
    return (
        known.group_by(((pl.col("length") // width) * width).alias("from"))
        .agg(**shares)
        .with_columns(to=pl.col("from") + width)
        .sort("from")
    )


def _percentiles(rollouts: pl.DataFrame) -> pl.DataFrame:
    length = pl.col("length")
    return (
        rollouts.drop_nulls("length")
        .group_by(kind=pl.when("right").then(pl.lit("right")).otherwise(pl.lit("wrong")))
        .agg(rollouts=pl.len(), **{f"p{p}": length.quantile(p / 100, "linear") for p in (10, 25, 50, 75, 90)})
        .sort("kind")
    )


def _columns(frame: pl.DataFrame) -> Columns:
    return frame.to_dict(as_series=False)
