"""Estimates from rollouts of which several answer the same question: means with confidence intervals, and pass@k.

Invariant: questions, not rollouts and not groups, are independent. Rollouts of one question share its difficulty, so 8
of them carry less information than 8 questions, whether they are one group or the question stands in 8 rows of a data
set; treating them as independent would make intervals too narrow, by up to the square root of their number. The k of
pass@k never exceeds the number of responses: a smaller group has no value.

Method. The mean is m = ΣS/ΣN over G questions with sum S and count N; its variance, as of any ratio of cluster totals,
is V = G/(G−1) · Σ(S − m·N)² / (ΣN)² (Cochran, Sampling Techniques, 1977, ch. 6). A mean in [0, 1] gets Wilson's
interval with the effective sample size m(1−m)/V and with Student's t of G−1 degrees of freedom in place of the normal
quantile (Korn and Graubard, Survey Methodology 24, 1998). It stays in [0, 1]. The effective sample size is never above
the number of values, and if all questions are equal, it is the number of questions, so that the interval does not
collapse. Other means get m ± t·√V. A single question has no interval.

Not covered: questions that are alike, such as those of one template with other numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from math import comb
from statistics import NormalDist

import polars as pl

Bounded = dict[str, pl.Expr]
"""The names of means, and of each an expression of a table's columns: whether the row's mean lies in [0, 1]."""
_CONFIDENCE = 0.95
_ROUNDING = 1e-20
"""Variances below this are rounding errors."""


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the probability that k of the n tries, drawn without replacement, include a success: 1 − C(n−c, k)/C(n,
    k).

    From Chen et al., Evaluating Large Language Models Trained on Code, 2021.

    Args:
        n: tries, at least k; c: successes among them, 0 to n; k: at least 1.

    Raises:
        ValueError: a number outside its range.

    >>> pass_at_k(8, 2, 1), pass_at_k(8, 2, 8), pass_at_k(4, 1, 2)
    (0.25, 1.0, 0.5)
    """
    if not (1 <= k <= n and 0 <= c <= n):
        raise ValueError(f"pass@{k} of {n} tries with {c} successes: needs 1 <= k <= n and 0 <= c <= n")
    return 1 - comb(n - c, k) / comb(n, k)


def tries_up_to(n: int) -> list[int]:
    """1, 2, 4, … and n itself.

    >>> tries_up_to(8), tries_up_to(6)
    ([1, 2, 4, 8], [1, 2, 4, 6])
    """
    powers = [2**e for e in range(n.bit_length()) if 2**e < n]
    return [*powers, n] if n > 0 else []


def moments(name: str) -> list[pl.Expr]:
    """Aggregations over a frame with one row per question, for `with_intervals`.

    Args:
        name: of the mean; the columns `NAME:total` and `NAME:count` have each question's sum and number of values.
            Questions with a count of 0 are ignored.
    """
    total, count = pl.col(f"{name}:total"), pl.col(f"{name}:count").cast(pl.Float64)
    n = count.sum()
    mean = total.sum() / n
    questions = (count > 0).sum().cast(pl.Int64)
    squares = ((total - mean * count) ** 2).sum()
    return [
        pl.when(n > 0).then(mean).alias(name),
        pl.when(questions > 1).then(squares * questions / (questions - 1) / n**2).alias(f"{name}_variance"),
        questions.alias(f"{name}_questions"),
        n.alias(f"{name}_values"),
    ]


def with_intervals(table: pl.DataFrame, names: Bounded) -> pl.DataFrame:
    """Replace the columns that `moments` added to each mean by `NAME_low` and `NAME_high`; null for a single
    question."""
    # All means below one another: an expression of each own column would take much longer to plan than to compute.
    columns = [pl.concat([table[name].alias("mean") for name in names])]
    for helper in ("variance", "questions", "values"):
        columns.append(pl.concat([table[f"{name}_{helper}"].alias(helper) for name in names]))
    bounded = table.with_columns(is_bounded.alias(name) for name, is_bounded in names.items())
    # In one piece: figures would differ in their last digit by how many others are computed.
    columns.append(pl.concat([bounded[name].alias("is_bounded") for name in names], rechunk=True))
    ends = _ends(pl.DataFrame(columns))
    bounds = []
    for number, name in enumerate(names):
        for end in ends:
            bounds.append(end.slice(number * table.height, table.height).alias(f"{name}_{end.name}"))
    helpers = (f"{name}_{helper}" for name in names for helper in ("variance", "questions", "values"))
    return table.with_columns(bounds).drop(helpers)


def t_quantiles(degrees: pl.Expr, values: Iterable[int | None]) -> pl.Expr:
    """`t_quantile` of a column, which has these values; null where it is below 1."""
    positive = sorted({value for value in values if value is not None and value > 0})
    quantiles = list(map(t_quantile, positive))
    return degrees.replace_strict(positive, quantiles, default=None, return_dtype=pl.Float64)


def t_quantile(degrees: int) -> float:
    """Return the two-sided 95% quantile of Student's t.

    Exact for 1 and 2 degrees of freedom; from 3 on the expansion of Abramowitz and Stegun, 26.7.5, accurate to 0.5%.

    >>> round(t_quantile(1), 3), round(t_quantile(9), 3), round(t_quantile(10**6), 3)
    (12.706, 2.262, 1.96)
    """
    tail = (1 - _CONFIDENCE) / 2
    if degrees == 1:
        return 1 / math.tan(math.pi * tail)
    if degrees == 2:
        return (1 - 2 * tail) / math.sqrt(2 * tail * (1 - tail))
    z = NormalDist().inv_cdf(1 - tail)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / degrees**power for power, term in enumerate(terms, 1))


def _ends(means: pl.DataFrame) -> pl.DataFrame:
    """Return the ends of the intervals, `low` and `high`, of rows with a mean, what `moments` adds to it, and
    `is_bounded`.
    """
    mean, variance, questions, is_bounded = map(pl.col, ("mean", "variance", "questions", "is_bounded"))
    t, n = pl.col("t"), pl.col("n")
    spread = (mean * (1 - mean)).clip(0, 1)
    informative = (variance > _ROUNDING) & (spread > _ROUNDING)
    means = means.with_columns(
        t=t_quantiles(questions - 1, [count - 1 for count in means["questions"].unique()]),
        n=pl.when(informative).then(pl.min_horizontal(spread / variance, "values")).otherwise(questions),
    )
    # Wilson's interval (E. B. Wilson, Journal of the American Statistical Association 22, 1927)
    means = means.with_columns(
        center=(mean + t**2 / (2 * n)) / (1 + t**2 / n),
        of_wilson=t / (1 + t**2 / n) * (mean * (1 - mean) / n + t**2 / (4 * n**2)).sqrt(),
        half=t * variance.sqrt(),
    )
    center, of_wilson, half = map(pl.col, ("center", "of_wilson", "half"))
    return means.select(
        low=pl.when(is_bounded).then((center - of_wilson).clip(0, 1)).otherwise(mean - half),
        high=pl.when(is_bounded).then((center + of_wilson).clip(0, 1)).otherwise(mean + half),
    )
