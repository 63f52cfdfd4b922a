"""Two runs on the same questions: means of both sides, their correlation, and which differences exceed chance.

Invariant: the unit of analysis is the question. All groups and rollouts of a question on one side are one value, and
only questions that both sides have are counted, so the difficulty of a question cancels out.

Method. Both means are ratios of totals over the shared questions, with the variances of `intervals` and the covariance
C = Q/(Q−1) · Σ(S − m·N)(S' − m'·N') / (ΣN·ΣN'). The interval of the difference is that of `intervals.difference` with
the correlation (1 − 1/Q)·C/√(V·V'), shrunk because few questions may agree by chance. In simulations, 95 % intervals
cover the true difference in 91 % of runs or more from 5 questions on.

The p-value is that of the sign-flip test: if the sides do not differ, each question's difference is as likely to be
negative as positive. It is exact for up to 63 differing questions, and holds for any distribution of scores; a p-value
of .05 needs at least 6 differing questions. For several tasks, p-values are adjusted by Holm's method, which bounds the
probability of one or more false findings (Scandinavian Journal of Statistics 6, 1979).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from functools import reduce

import polars as pl

from rg_env.analysis.intervals import CONFIDENCE, with_intervals
from rg_env.analysis.stats import UNBOUNDED, Measured

TESTED = ("solve_rate", "mean_score")
"""The measures that get a p-value."""

_GRID = 840
"""Differences are rounded to multiples of 1/840, which is exact for 1 to 8 rollouts per question."""
_EXACT = 63
"""Most differing questions for the exact test: the number of sign patterns must fit in 64 bits."""


def per_question(found: Measured, keys: Sequence[str]) -> pl.DataFrame:
    """One row per question and value of the keys: sums and counts of all measures, and a group's id.

    Rows of dumps that do not record which question a group has (Atropos' files) are left out.
    """
    named = found.groups.filter(pl.col("item").fill_null("") != "")
    sums = (
        expression.cast(pl.Float64).sum().alias(f"{name}:{part}")
        for name, pair in found.measures.items()
        for part, expression in zip(("total", "count"), pair, strict=True)
    )
    keys = list(dict.fromkeys([*keys, "task"]))
    texts = [pl.col(key).cast(pl.String) for key in keys if key != "step"]
    return (
        named.with_columns(texts)
        .group_by(*keys, "item")
        .agg(pl.len().alias("groups"), pl.col("group_id").first(), *sums)
        .sort(*keys, "item")
    )


def paired_means(
    shared: pl.DataFrame, keys: Sequence[str], measures: Sequence[str], confidence: float = CONFIDENCE
) -> pl.DataFrame:
    """The comparison over shared questions.

    Args:
        shared: rows of `per_question` of both sides, joined; columns of the other side end in `_other`.

    Returns:
        one row per value of the keys and measure: `measure`, `questions` (with a value on both sides), `groups`,
        `groups_other`, `value` and `other` with their bounds, `correlation`, and `p`, of the sign-flip test, for the
        measures `TESTED`.
    """
    parts = []
    for bounded in (True, False):
        names = [name for name in measures if (name not in UNBOUNDED) == bounded]
        table = pl.concat([_moments(shared, keys, name) for name in names])
        parts.append(with_intervals(table, {"value": bounded, "other": bounded}, confidence))
    return pl.concat(parts)


def sign_flip_p(differences: Sequence[float]) -> float:
    """The two-sided p-value of the sum of differences in [-1, 1] when each sign is random.

    >>> sign_flip_p([1.0] * 6), sign_flip_p([0.5, -0.5, 0.0]), sign_flip_p([])
    (0.03125, 1.0, 1.0)
    """
    steps = [round(value * _GRID) for value in differences]
    sizes = [abs(step) for step in steps if step]
    observed = abs(sum(steps))
    if not observed:
        return 1.0
    if len(sizes) > _EXACT:
        return math.erfc(observed / math.sqrt(2 * sum(size**2 for size in sizes)))
    unit = math.gcd(*sizes)
    sizes = [size // unit for size in sizes]
    # `counts` has a lane of 64 bits for each possible sum of a subset: in how many ways it is reached.
    counts = reduce(lambda ways, size: ways + (ways << 64 * size), sizes, 1)
    lanes = array("Q", counts.to_bytes(8 * (sum(sizes) + 1), "little"))
    positive = (sum(sizes) + observed // unit) // 2  # the sum of the positive ones if the total is as observed
    return min(1.0, sum(lanes[positive:]) / float(2 ** (len(sizes) - 1)))


def holm(p: pl.Expr) -> pl.Expr:
    """Holm's adjusted p-values; null where `p` is.

    >>> pl.select(holm(pl.lit(pl.Series([0.01, 0.04, None, 0.03])))).to_series().to_list()
    [0.03, 0.06, None, 0.06]
    """
    left = p.count() - p.rank("ordinal").cast(pl.Int64) + 1
    order = p.arg_sort(nulls_last=True)
    return (p * left).clip(upper_bound=1).gather(order).cum_max().gather(order.arg_sort())


def _moments(shared: pl.DataFrame, keys: Sequence[str], name: str) -> pl.DataFrame:
    """Both means of a measure, their variances and correlation, over the questions that have a value on both sides."""
    count, count_other = pl.col(f"{name}:count"), pl.col(f"{name}:count_other")
    both = shared.filter(count > 0, count_other > 0)
    sides = {}
    for side, suffix in (("value", ""), ("other", "_other")):
        total, n = pl.col(f"{name}:total{suffix}"), pl.col(f"{name}:count{suffix}")
        mean = total.sum() / n.sum()
        sides[side] = (mean, (total - mean * n) / n.sum())
    (value, mine), (other, theirs) = sides.values()
    change = pl.col(f"{name}:total") / count - pl.col(f"{name}:total_other") / count_other
    questions = pl.len().cast(pl.Int64)
    table = both.group_by(keys).agg(
        pl.lit(name).alias("measure"),
        questions.alias("questions"),
        pl.col("groups", "groups_other").sum(),
        *(
            column
            for side, mean, influence in (("value", value, mine), ("other", other, theirs))
            for column in (
                mean.alias(side),
                pl.when(questions > 1)
                .then((influence**2).sum() * questions / (questions - 1))
                .alias(f"{side}_variance"),
                questions.alias(f"{side}_clusters"),
            )
        ),
        ((mine * theirs).sum() / ((mine**2).sum() * (theirs**2).sum()).sqrt() * (1 - 1 / questions)).alias(
            "correlation"
        ),
        change.alias("changes"),
    )
    p = [sign_flip_p(changes) if name in TESTED else None for changes in table["changes"]]
    return table.with_columns(pl.Series("p", p, pl.Float64), pl.col("correlation").fill_nan(0.0)).drop("changes")
