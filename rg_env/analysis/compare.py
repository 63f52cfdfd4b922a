"""Comparison of two runs: which statistics differ by more than chance.

Invariant: a difference is taken only between rows with the same phase and value of `by`. A row is *paired* if the two
sides share at least half of the questions of the side that has fewer: then only the shared questions count, and the
interval is that of their differences (see `paired`). Otherwise the sides are treated as independent; if some questions
are shared all the same, the intervals are too wide, not too narrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import polars as pl

from rg_env.analysis.by import key_columns
from rg_env.analysis.intervals import CONFIDENCE, difference
from rg_env.analysis.paired import holm, paired_means, per_question
from rg_env.analysis.sample import Sample, Source, sample_of
from rg_env.analysis.stats import SOLVED_AT, Measured, measure_groups, statistics
from rg_env.choices import By

_SOLVED_QUESTION = 0.5
"""A question counts as solved on one side if at least this share of its rollouts is."""


def compare(
    source: Source,
    other: Source,
    by: str = By.TASK,
    *,
    where: Sequence[str] = (),
    other_where: Sequence[str] | None = None,
    unmatched: Sequence[str] = (),
    solved_at: float = SOLVED_AT,
    confidence: float = CONFIDENCE,
) -> pl.DataFrame:
    """Differences between two sides. All runs of a side are pooled.

    Args:
        source, other: the sides, as for `statistics`. A `Sample` must have the columns `TO_MATCH`.
        by, solved_at, confidence: as for `statistics`.
        where: conditions for both sides; must be empty for samples.
        other_where: conditions for the other side, instead of `where`.
        unmatched: tasks whose questions differ although their ids may be equal: they are not paired.

    Returns:
        one row for each phase, value of `by` and measure (the columns of `statistics` that have an interval): `phase`,
        the columns of `by`, `measure`, `paired`, `questions` (of paired rows), `groups` and `groups_other`, `value` and
        `other`, `difference` = value − other with `low` and `high`, its confidence interval, and `clear`: True if the
        interval excludes 0. Paired rows of solve rate and mean score have `p`, `p_adjusted` for the number of rows of
        the same phase and measure, and `differs`: whether that is below 1 − confidence. Values that one side lacks are
        null.

    Raises:
        As `statistics`.
    """
    samples = _samples(source, other, where, other_where)
    keys = key_columns(by)
    mine, theirs = (
        statistics(sample, by, solved_at=solved_at, pool_runs=True, confidence=confidence) for sample in samples
    )
    columns = dict.fromkeys([*mine.columns, *theirs.columns])
    measures = [name.removesuffix("_low") for name in columns if name.endswith("_low")]
    measures.remove("solve_rate_change")  # already a difference
    independent = _independent(_long(mine, keys, measures), _long(theirs, keys, measures), keys)
    paired = _paired(samples, keys, unmatched, solved_at, confidence)
    row = [*keys, "measure"]
    rows = pl.concat([independent.join(paired, on=row, how="anti", nulls_equal=True), paired], how="diagonal")
    return (
        rows.with_columns(
            clear=(pl.col("low") > 0) | (pl.col("high") < 0),
            p_adjusted=holm(pl.col("p")).over("phase", "measure"),
        )
        .with_columns(differs=pl.col("p_adjusted") < 1 - confidence)
        .sort(*keys, pl.col("measure").cast(pl.Enum(measures)))
        .select(*row, *_COLUMNS)
    )


def flips(
    source: Source,
    other: Source,
    *,
    where: Sequence[str] = (),
    other_where: Sequence[str] | None = None,
    unmatched: Sequence[str] = (),
    solved_at: float = SOLVED_AT,
) -> pl.DataFrame:
    """The questions that at least half of the rollouts solve on one side only. Arguments as for `compare`.

    Returns:
        `phase`, `task`, `item`, `value` and `other` (shares of solved rollouts), and `group_id` and `group_id_other`,
        a group of each side. The largest differences come first.
    """
    shared, _ = _shared(_samples(source, other, where, other_where), ["phase", "task"], unmatched, solved_at)
    rates = [
        (pl.col(f"solve_rate:total{side}") / pl.col(f"solve_rate:count{side}")).alias(name)
        for side, name in (("", "value"), ("_other", "other"))
    ]
    value, rate_other = pl.col("value"), pl.col("other")
    return (
        shared.select("phase", "task", "item", *rates, "group_id", "group_id_other")
        .filter((value >= _SOLVED_QUESTION) != (rate_other >= _SOLVED_QUESTION))
        .sort(-(value - rate_other).abs(), "phase", "task", "item")
    )


_COLUMNS = (
    *("paired", "questions", "groups", "groups_other", "value", "other"),
    *("difference", "low", "high", "clear", "p", "p_adjusted", "differs"),
)


def _samples(source: Source, other: Source, where: Sequence[str], other_where: Sequence[str] | None) -> list[Sample]:
    conditions = (where, where if other_where is None else other_where)
    return [sample_of(side, given, to_match=True) for side, given in zip((source, other), conditions, strict=True)]


def _independent(mine: pl.DataFrame, other: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """The comparison of two sides as if they had no question in common."""
    return (
        mine.join(other, on=[*keys, "measure"], how="full", coalesce=True, nulls_equal=True, suffix="_other")
        .rename({"value_other": "other", "value_low_other": "other_low", "value_high_other": "other_high"})
        .with_columns(*_difference(), paired=pl.lit(False))
    )


def _paired(
    samples: list[Sample], keys: list[str], unmatched: Sequence[str], solved_at: float, confidence: float
) -> pl.DataFrame:
    """The rows that are paired."""
    shared, sides = _shared(samples, keys, unmatched, solved_at)
    unknown = {name for side in sides for name in side.unknown}
    measures = [name for name in sides[0].measures if name in sides[1].measures and name not in unknown]
    return paired_means(shared, keys, measures, confidence).with_columns(
        *_difference(pl.col("correlation")), paired=pl.lit(True)
    )


def _shared(
    samples: list[Sample], keys: list[str], unmatched: Sequence[str], solved_at: float
) -> tuple[pl.DataFrame, list[Measured]]:
    """The shared questions of the rows that are paired."""
    sides = [measure_groups(sample, keys, solved_at) for sample in samples]
    mine, other = (per_question(side, keys).filter(~pl.col("task").is_in(list(unmatched))) for side in sides)
    on = list(dict.fromkeys([*keys, "task", "item"]))
    shared = mine.join(other, on=on, suffix="_other", nulls_equal=True)
    counts = [frame.group_by(keys).len(name) for frame, name in ((shared, "n"), (mine, "mine"), (other, "theirs"))]
    enough = reduce(lambda one, two: one.join(two, on=keys, nulls_equal=True), counts).filter(
        pl.col("n") >= 2, 2 * pl.col("n") >= pl.min_horizontal("mine", "theirs")
    )
    return shared.join(enough.select(keys), on=keys, how="semi", nulls_equal=True), sides


def _difference(correlation: pl.Expr | None = None) -> list[pl.Expr]:
    change, low, high = difference("difference", "value", "other", correlation)
    return [change, low.alias("low"), high.alias("high")]


def _long(table: pl.DataFrame, keys: list[str], measures: Sequence[str]) -> pl.DataFrame:
    """One row per input row and measure: `groups`, `value`, `value_low` and `value_high`."""
    return pl.concat(
        table.select(
            *keys,
            "groups",
            pl.lit(name).alias("measure"),
            *(pl.col(f"{name}{bound}").alias(f"value{bound}") for bound in ("", "_low", "_high")),
        )
        for name in measures
        if name in table.columns
    )
