"""Comparison of two runs: which statistics differ by more than chance.

Invariant: a difference is taken only between rows with the same phase and value of `by`. The two sides are treated as
independent; if both were evaluated on the same questions, the intervals are too wide, not too narrow.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from rg_env.analysis.intervals import CONFIDENCE, difference
from rg_env.analysis.sample import Source
from rg_env.analysis.stats import SOLVED_AT, statistics
from rg_env.choices import By


def compare(
    source: Source,
    other: Source,
    by: str = By.TASK,
    *,
    where: Sequence[str] = (),
    solved_at: float = SOLVED_AT,
    confidence: float = CONFIDENCE,
) -> pl.DataFrame:
    """Differences between two sides. All runs of a side are pooled. Arguments and errors as for `statistics`.

    Returns:
        one row for each phase, value of `by` and measure (the columns of `statistics` that have an interval): `phase`,
        the columns of `by`, `measure`, `groups` and `groups_other`, `value` and `other`, `difference` = value − other
        with `low` and `high`, its confidence interval, and `clear`: True if the interval excludes 0. Values that one
        side lacks are null.
    """
    sides = [
        statistics(side, by, where=where, solved_at=solved_at, pool_runs=True, confidence=confidence)
        for side in (source, other)
    ]
    keys = list(dict.fromkeys(["phase", *By(by).columns]))
    columns = dict.fromkeys([*sides[0].columns, *sides[1].columns])
    measures = [name.removesuffix("_low") for name in columns if name.endswith("_low")]
    measures.remove("solve_rate_change")  # already a difference
    mine, theirs = _long(sides[0], keys, measures, "value"), _long(sides[1], keys, measures, "other")
    return (
        mine.join(theirs, on=[*keys, "measure"], how="full", coalesce=True, nulls_equal=True, suffix="_other")
        .with_columns(difference("difference", "value", "other"))
        .with_columns(clear=(pl.col("difference_low") > 0) | (pl.col("difference_high") < 0))
        .sort(*keys, pl.col("measure").cast(pl.Enum(measures)))
        .select(
            *keys,
            "measure",
            "groups",
            "groups_other",
            "value",
            "other",
            "difference",
            pl.col("difference_low").alias("low"),
            pl.col("difference_high").alias("high"),
            "clear",
        )
    )


def _long(table: pl.DataFrame, keys: list[str], measures: Sequence[str], side: str) -> pl.DataFrame:
    """One row per input row and measure; the mean and its bounds are named after the side."""
    parts = [
        table.select(
            *keys,
            pl.lit(name).alias("measure"),
            "groups",
            pl.col(name).alias(side),
            pl.col(f"{name}_low").alias(f"{side}_low"),
            pl.col(f"{name}_high").alias(f"{side}_high"),
        )
        for name in measures
        if name in table.columns
    ]
    return pl.concat(parts)
