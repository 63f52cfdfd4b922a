"""Comparison of two sides: which statistics differ by more than chance.

Invariant: a difference is taken only between rows with the same phase, environment and value of `by`. The unit of
analysis is the question, or the run where both sides have several (`unit_of`).

Questions: all groups and rollouts of a question on one side are one value. A row is *paired* if the two sides share at
least half of the questions of the side that has fewer: then only the shared questions count, and their difficulty
cancels out. Otherwise the sides are treated as independent; if some questions are shared all the same, the intervals
are too wide, not too narrow.

Method. A mean is the ratio of totals over Q questions; question q moves it by e = Q·(S − m·N)/ΣN. The variance of the
mean is Σe²/(Q(Q − 1)), that of a paired difference Σ(e − e')²/(Q(Q − 1)); intervals have Student's t. For means in
[0, 1], a few questions are added first, so that an interval neither collapses nor is too narrow where all questions
agree: a 0 and a 1 on each side if independent (Agresti and Caffo, The American Statistician 54, 2000), and half a
difference of +1, half of −1 and one of 0 if paired (Agresti and Min, Statistics in Medicine 24, 2005).

Runs: training runs with the same settings and other seeds differ by more than the choice of questions explains. So the
training rows of one run against one other have no interval. With several runs a side, the runs are the Q units above,
with Student's t and nothing added.
Not covered: that among many rows some differ by chance.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import product
from typing import Any

import polars as pl

from rg_env.analysis.by import key_columns
from rg_env.analysis.intervals import CONFIDENCE, t_of
from rg_env.analysis.stats import STATISTICS, UNBOUNDED, Measured, by_keys, measure
from rg_env.choices import By
from rg_env.dump import Dump, Phase

Side = pl.LazyFrame | pl.DataFrame | Measured
"""Rows as `Dump.scan` gives them, or what `measure` made of them with `to_match`."""


class Unit(enum.StrEnum):
    """What is compared: what an interval says about the next one of."""

    QUESTION = "question"
    RUN = "run"
    ONE_RUN = "one run"
    """A training run on each side: questions, but without intervals in the training phase."""


_SOLVED_QUESTION = 0.5
"""A question counts as solved on one side if at least this share of its rollouts is."""
_OTHER = "_other"


def compare(
    side: Side,
    other: Side,
    by: str = By.TASK,
    *,
    unit: Unit = Unit.QUESTION,
    unmatched: Sequence[str] = (),
    confidence: float = CONFIDENCE,
) -> pl.DataFrame:
    """Differences between two sides. All runs of a side are pooled.

    Args:
        by, confidence: as for `statistics`.
        unit: see `unit_of`.
        unmatched: tasks whose questions differ although their ids may be equal: they are not paired.

    Returns:
        one row for each phase, environment, value of `by` and measure (the columns of `statistics` that have an
        interval): `phase`, `environment`, the columns of `by`, `measure`, `paired`, `questions` and
        `questions_other` (equal if paired; with `Unit.RUN` the numbers of runs), `value` and `other`, `difference` =
        value − other with `low` and `high`, its confidence interval (null for fewer than two units, and where `unit`
        allows none), and `clear`: whether the interval excludes 0. Values that one side lacks are null.

    Raises:
        DumpError: as `statistics`.
    """
    keys = key_columns(by)
    over_runs = unit is Unit.RUN
    (mine, names), (theirs, names_other) = (_questions(one, keys, over_runs) for one in (side, other))
    measures = list(dict.fromkeys([*names, *names_other]))
    shared = _shared(mine, theirs, keys, unmatched)
    paired = _rows(_moments(shared, keys, [name for name in names if name in names_other], paired=True), keys)
    sides = [
        _rows(_moments(table, keys, found), keys, over_runs) for table, found in ((mine, names), (theirs, names_other))
    ]
    both = sides[0].join(sides[1], on=[*keys, "measure"], how="full", coalesce=True, nulls_equal=True, suffix=_OTHER)
    independent = both.rename({f"value{_OTHER}": "other"}).with_columns(paired=pl.lit(False))
    independent = independent.join(paired, on=[*keys, "measure"], how="anti", nulls_equal=True)
    found = pl.concat([_independent(independent, confidence), _paired(paired, confidence)], how="diagonal_relaxed")
    if unit is Unit.ONE_RUN:
        bounds = (pl.when(pl.col("phase") != Phase.TRAIN.value).then(name).alias(name) for name in ("low", "high"))
        found = found.with_columns(bounds)
    return (
        found.with_columns(clear=((pl.col("low") > 0) | (pl.col("high") < 0)).fill_null(False))
        .sort(*keys, pl.col("measure").cast(pl.Enum(measures)))
        .select(*keys, "measure", "paired", "questions", f"questions{_OTHER}", "value", "other", *_DIFFERENCE, "clear")
    )


def flips(side: Side, other: Side, *, unmatched: Sequence[str] = ()) -> pl.DataFrame:
    """The questions that at least half of the rollouts solve on one side only. Arguments as for `compare`.

    Returns:
        `phase`, `environment`, `task`, `item`, `value` and `other` (shares of solved rollouts), and `group_id` and
        `group_id_other`, a group of each side. The largest differences come first.
    """
    keys = ["phase", "environment", "task"]
    (mine, _), (theirs, _) = (_questions(one, keys) for one in (side, other))
    value, rate_other = (pl.col(f"solve_rate:total{s}") / pl.col(f"solve_rate:count{s}") for s in ("", _OTHER))
    return (
        _shared(mine, theirs, keys, unmatched)
        .select(*keys, "item", value=value, other=rate_other, group_id="group_id", group_id_other="group_id_other")
        .filter((pl.col("value") >= _SOLVED_QUESTION) != (pl.col("other") >= _SOLVED_QUESTION))
        .sort(-(pl.col("value") - pl.col("other")).abs(), *keys, "item")
    )


def unit_of(dump: Dump, other: Dump) -> Unit:
    """Runs if each side has several of its own, else questions. Rollouts of an endpoint are no training run."""
    sides = [{run.run_id for run in side.runs} for side in (dump, other)]
    if sides[0] & sides[1]:
        return Unit.QUESTION
    if min(map(len, sides)) > 1:
        return Unit.RUN
    trained = all("endpoint" not in (run.manifest or {}) for run in (*dump.runs, *other.runs))
    return Unit.ONE_RUN if trained else Unit.QUESTION


def differing_tasks(dump: Dump, other: Dump) -> list[str]:
    """The tasks whose options differ between any two of the runs, sorted: equal ids may be different questions."""
    known: dict[str, Any] = {}
    differing = set()
    for run in (*dump.runs, *other.runs):
        mix = (run.manifest or {}).get("task_mix")
        for task, chosen in mix.items() if isinstance(mix, Mapping) else ():
            options = chosen.get("config") if isinstance(chosen, Mapping) else None
            if known.setdefault(task, options) != options:
                differing.add(str(task))
    return sorted(differing)


def differing_suites(dump: Dump, other: Dump) -> Iterator[str]:
    """One line on each two sets of questions that differ between the sides, by the runs' manifests."""
    suites = [
        [suite for run in side.runs if isinstance(suite := (run.manifest or {}).get("suite"), Mapping)]
        for side in (dump, other)
    ]
    names = [
        " and ".join(f"{suite.get('name')} ({suite.get('fingerprint')})" for suite in pair)
        for pair in product(*suites)
        if pair[0].get("fingerprint") != pair[1].get("fingerprint")
    ]
    yield from (f"the runs answered different sets of questions: {name}" for name in dict.fromkeys(names))


_DIFFERENCE = ("difference", "low", "high")


def _questions(side: Side, keys: Sequence[str], over_runs: bool = False) -> tuple[pl.DataFrame, list[str]]:
    """One row per question and value of the keys: sums and counts of all measures, and a group's id; and the measures.

    Groups of dumps that do not record their questions are a question each, whose `item` is null. With `over_runs`,
    each run is such a question.
    """
    found = side if isinstance(side, Measured) else measure(side, to_match=True)
    _, groups, tries, split = by_keys(found, keys)
    names = [one.name for one in STATISTICS if one.interval and not (split and one.per_group)]
    names += [] if split else tries
    names += ["solve_rate_first", "solve_rate_last"]
    item: pl.Expr = pl.lit(None, pl.String) if over_runs else pl.when(pl.col("item") != "").then("item")
    unit = pl.col("run_id") if over_runs else item.fill_null(pl.col("group_id"))
    columns = list(dict.fromkeys(keys if over_runs else [*keys, "task"]))
    sums = (pl.col(f"{name}:{part}").cast(pl.Float64).sum() for name in names for part in ("total", "count"))
    return (
        groups.with_columns(pl.col(key).cast(pl.String) for key in columns if key != "step")
        .with_columns(item=item, question=unit)
        .group_by(*columns, "question")
        .agg(pl.col("item", "group_id", *({"task"} - set(columns))).first(), *sums)
        .sort(*columns, "question")
    ), names


def _shared(mine: pl.DataFrame, theirs: pl.DataFrame, keys: Sequence[str], unmatched: Sequence[str]) -> pl.DataFrame:
    """The questions of both sides, in the rows that are paired; columns of the other side end in `_other`."""
    known = [
        side.filter(pl.col("item").is_not_null(), pl.col("task").is_in(list(unmatched)).not_())
        for side in (mine, theirs)
    ]
    on = list(dict.fromkeys([*keys, "task", "item"]))
    shared = known[0].join(known[1], on=on, suffix=_OTHER, nulls_equal=True)
    counts = [
        frame.group_by(keys).len(name) for frame, name in zip((shared, *known), ("n", "mine", "its"), strict=True)
    ]
    enough = reduce(lambda one, two: one.join(two, on=keys, nulls_equal=True), counts).filter(
        pl.col("n") >= 2, 2 * pl.col("n") >= pl.min_horizontal("mine", "its")
    )
    return shared.join(enough.select(keys), on=keys, how="semi", nulls_equal=True)


def _moments(
    questions: pl.DataFrame, keys: Sequence[str], names: Sequence[str], *, paired: bool = False
) -> dict[str, pl.DataFrame]:
    """For each measure and value of the keys: the mean, the number of questions and the sum of squared deviations; if
    paired, both means, and the deviations are those of the differences.
    """
    suffixes = ("", _OTHER) if paired else ("",)
    found = {}
    for name in names:
        pairs = [(pl.col(f"{name}:total{suffix}"), pl.col(f"{name}:count{suffix}")) for suffix in suffixes]
        n = pl.len()
        deviations = [n * (total - total.sum() / count.sum() * count) / count.sum() for total, count in pairs]
        deviation = deviations[0] - deviations[1] if paired else deviations[0]
        found[name] = (
            questions.filter(pl.min_horizontal(count for _, count in pairs) > 0)
            .group_by(keys)
            .agg(
                *(
                    (total.sum() / count.sum()).alias(column)
                    for column, (total, count) in zip(("value", "other"), pairs, strict=False)
                ),
                n.cast(pl.Int64).alias("questions"),
                (deviation**2).sum().alias("squares"),
            )
        )
    return found


def _rows(tables: Mapping[str, pl.DataFrame], keys: Sequence[str], over_runs: bool = False) -> pl.DataFrame:
    """The tables one below the other."""
    rows = [
        table.with_columns(measure=pl.lit(name), bounded=pl.lit(name not in UNBOUNDED and not over_runs))
        for name, table in tables.items()
    ]
    return pl.concat(rows).select(*keys, "measure", pl.exclude(*keys, "measure"))


def _paired(rows: pl.DataFrame, confidence: float) -> pl.DataFrame:
    n, change = pl.col("questions"), pl.col("value") - pl.col("other")
    added = pl.when("bounded").then(2).otherwise(0)
    center = n * change / (n + added)
    squares = pl.col("squares") + pl.when("bounded").then(1 + n * (change - center) ** 2 + 2 * center**2).otherwise(0)
    rows = rows.with_columns(**{f"questions{_OTHER}": n}, paired=pl.lit(True))
    return _with_bounds(rows, change, center, squares / ((n + added) * (n + added - 1)), n - 1, confidence)


def _independent(rows: pl.DataFrame, confidence: float) -> pl.DataFrame:
    means, variances = [], []
    bounded = pl.col("bounded").fill_null(pl.col(f"bounded{_OTHER}"))
    for mean, suffix in ((pl.col("value"), ""), (pl.col("other"), _OTHER)):
        n, squares = pl.col(f"questions{suffix}"), pl.col(f"squares{suffix}")
        added = pl.when(bounded).then(2).otherwise(0)
        center = pl.when(bounded).then((n * mean + 1) / (n + 2)).otherwise(mean)
        of_added = n * (mean - center) ** 2 + center**2 + (1 - center) ** 2
        means.append(center)
        variances.append((squares + pl.when(bounded).then(of_added).otherwise(0)) / ((n + added) * (n + added - 1)))
    fewer = pl.min_horizontal("questions", f"questions{_OTHER}")
    degrees = pl.when(fewer > 1).then(pl.col("questions") + pl.col(f"questions{_OTHER}") - 2)
    change = pl.col("value") - pl.col("other")
    return _with_bounds(rows, change, means[0] - means[1], variances[0] + variances[1], degrees, confidence)


def _with_bounds(
    rows: pl.DataFrame, change: pl.Expr, center: pl.Expr, variance: pl.Expr, degrees: pl.Expr, confidence: float
) -> pl.DataFrame:
    rows = rows.with_columns(difference=change, center=center, variance=variance, degrees=degrees)
    half = t_of(pl.col("degrees"), rows["degrees"].unique(), confidence) * pl.col("variance").sqrt()
    limit = pl.when("bounded").then(1.0).otherwise(float("inf"))
    low, high = pl.col("center") - half, pl.col("center") + half
    return rows.with_columns(low=pl.max_horizontal(low, -limit), high=pl.min_horizontal(high, limit)).with_columns(
        pl.when(half.is_not_null()).then(name).alias(name) for name in ("low", "high")
    )
