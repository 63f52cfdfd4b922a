"""Comparison of two sides: which statistics differ by more than chance.

Invariant: only questions that both sides have are compared, one by one, so that their difficulty cancels out. All
groups and rollouts of a question on one side are one value. A difference is taken only between rollouts of the same
phase and environment.

Method. A mean is the ratio of totals over Q questions; question q moves it by e = Q·(S − m·N)/ΣN. The variance of the
difference of two means over the same questions is Σ(e − e')²/(Q(Q − 1)); intervals have Student's t. For means in
[0, 1], half a difference of +1, half of −1 and one of 0 are added first, so that an interval neither collapses nor is
too narrow where all questions agree (Agresti and Min, Statistics in Medicine 24, 2005).

An interval covers the choice of questions and samples. Training runs with the same settings and other seeds differ by
more than that, so training rows have none. Not covered: that among many rows some differ by chance.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import polars as pl

from rg_env.analysis.estimates import t_quantiles
from rg_env.analysis.stats import Measured, by_keys, key_columns, measure
from rg_env.choices import By
from rg_env.dump import Phase, Run

Side = pl.LazyFrame | pl.DataFrame | Measured
"""Rows as `Dump.scan` gives them, or what `measure` made of them with `to_match`."""

_SOLVED_QUESTION = 0.5
"""A question counts as solved on one side if at least this share of its rollouts is."""


def compare(
    this: Side,
    other: Side,
    by: str = By.TASK,
    *,
    unmatched: Collection[str] = (),
) -> pl.DataFrame:
    """Differences between two sides over the questions that both have. All runs of a side are pooled.

    Args:
        by: as for `statistics`.
        unmatched: tasks whose questions differ although their ids may be equal: they are left out.

    Returns:
        one row for each phase, environment, value of `by` and measure (a statistic or pass@k): `phase`, `environment`,
        the columns of `by`, `measure`, `questions`, `this` and `other` (the means), `difference` = this − other with
        `low` and `high`, its 95 % interval (null for a single question, and in the train phase), and `clear`: whether
        the interval excludes 0.

    Raises:
        DumpError: as `statistics`.
    """
    keys = key_columns(by)
    pairs, bounded = _pairs(this, other, keys, unmatched)
    of_measure = [*keys, "measure"]
    n = pl.len()
    means, moves = {}, {}
    for side in ("this", "other"):
        total, count = pl.col(f"total_{side}"), pl.col(f"count_{side}")
        means[side] = total.sum() / count.sum()
        moves[side] = n * (total - means[side] * count) / count.sum()
    rows = (
        pairs.filter(pl.min_horizontal("count_this", "count_other") > 0)
        .group_by(of_measure)
        .agg(n.cast(pl.Int64).alias("questions"), **means, squares=((moves["this"] - moves["other"]) ** 2).sum())
        .with_columns(difference=pl.col("this") - pl.col("other"), bounded=pl.col("measure").replace_strict(bounded))
    )
    questions, change, squares = pl.col("questions"), pl.col("difference"), pl.col("squares")
    added = pl.when("bounded").then(2).otherwise(0)
    center = questions * change / (questions + added)
    squares += pl.when("bounded").then(1 + questions * (change - center) ** 2 + 2 * center**2).otherwise(0)
    variance = squares / ((questions + added) * (questions + added - 1))
    half = t_quantiles(questions - 1, [count - 1 for count in rows["questions"].unique()]) * variance.sqrt()
    limit = pl.when("bounded").then(1.0).otherwise(float("inf"))
    known = half.is_not_null() & (pl.col("phase") != Phase.TRAIN.value)
    return (
        rows.with_columns(
            low=pl.when(known).then(pl.max_horizontal(center - half, -limit)),
            high=pl.when(known).then(pl.min_horizontal(center + half, limit)),
        )
        .with_columns(clear=((pl.col("low") > 0) | (pl.col("high") < 0)).fill_null(False))
        .sort(*keys, pl.col("measure").cast(pl.Enum(list(bounded))))
        .select(*of_measure, "questions", "this", "other", "difference", "low", "high", "clear")
    )


def flips(this: Side, other: Side, *, unmatched: Collection[str] = ()) -> pl.DataFrame:
    """The questions that one side solves in at least half of its tries, and the other does not.

    Args:
        unmatched: as for `compare`.

    Returns:
        `phase`, `environment`, `task`, `item`, `this` and `other` (shares of solved rollouts), and `group_this` and
        `group_other`, the id of a group of each side. The largest differences come first.
    """
    keys = ["phase", "environment", "task"]
    pairs, _ = _pairs(this, other, keys, unmatched)
    shares = {side: pl.col(f"total_{side}") / pl.col(f"count_{side}") for side in ("this", "other")}
    return (
        pairs.filter(pl.col("measure") == "solve_rate")
        .select(*keys, "item", **shares, group_this="group_id_this", group_other="group_id_other")
        .filter((pl.col("this") >= _SOLVED_QUESTION) != (pl.col("other") >= _SOLVED_QUESTION))
        .sort(-(pl.col("this") - pl.col("other")).abs(), *keys, "item")
    )


def shared_questions(this: Side, other: Side, *, unmatched: Collection[str] = ()) -> tuple[int, int, int]:
    """The number of questions of a side, of the other, and of both; a question in two phases counts twice."""
    on = ["phase", "environment", "task", "item"]
    first, second = (_questions(side, on[:-1], unmatched)[0].select(on).unique() for side in (this, other))
    return first.height, second.height, first.join(second, on=on).height


def differing_tasks(*runs: Run) -> list[str]:
    """The tasks whose options differ between any two of the runs, sorted: equal ids may be different questions."""
    options: dict[str, Any] = {}
    differing = set()
    for run in runs:
        mix = (run.manifest or {}).get("task_mix")
        for task, chosen in mix.items() if isinstance(mix, Mapping) else ():
            config = chosen.get("config") if isinstance(chosen, Mapping) else None
            if options.setdefault(task, config) != config:
                differing.add(str(task))
    return sorted(differing)


def _pairs(
    this: Side, other: Side, keys: Sequence[str], unmatched: Collection[str]
) -> tuple[pl.DataFrame, dict[str, bool]]:
    """A row per measure and shared question with sums and counts of both; and whether each measure is in [0, 1]."""
    sides, bounded = zip(*(_questions(side, keys, unmatched) for side in (this, other)), strict=True)
    on = list(dict.fromkeys([*keys, "task", "item", "measure"]))
    left, right = (
        questions.rename({name: f"{name}_{side}" for name in ("group_id", "total", "count")})
        for questions, side in zip(sides, ("this", "other"), strict=True)
    )
    return left.join(right, on=on, nulls_equal=True), bounded[0] | bounded[1]


def _questions(side: Side, keys: Sequence[str], unmatched: Collection[str]) -> tuple[pl.DataFrame, dict[str, bool]]:
    """A row per measure and question: the sum and the number of values, and a group's id; and as `_pairs`."""
    measured = side if isinstance(side, Measured) else measure(side, to_match=True)
    _, groups, names = by_keys(measured, keys)
    bounded = {name: bounds for name, bounds in names.items() if not name.startswith("solve_rate_")}
    on = list(dict.fromkeys([*keys, "task", "item"]))
    questions = (
        groups.cast(pl.Schema({key: pl.String() for key in on if key != "step"}))
        .filter(pl.col("item") != "", ~pl.col("task").is_in(list(unmatched)))
        .group_by(on)
        .agg(
            pl.col("group_id").first(),
            *(pl.col(f"{name}:{what}").cast(pl.Float64).sum() for name in bounded for what in ("total", "count")),
        )
    )
    tables = [
        questions.select(
            *on, "group_id", measure=pl.lit(name), total=pl.col(f"{name}:total"), count=pl.col(f"{name}:count")
        )
        for name in bounded
    ]
    return pl.concat(tables), bounded
