"""Detectors of trends in a task's scores, from the ledger, which has every group.

Means and standard errors are over groups, because the rollouts of a group share an item.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import polars as pl

from rg_env.analysis.signs.findings import Finding, Sign

_WINDOW = 3
"""Steps before and after a jump."""
_JUMP = 0.4
_SIGMAS = 5.0
_FEWEST_GROUPS = 12
_RISE = 0.15
_COLLAPSE = 0.5
"""Remaining share of the length."""


def trend_findings(ledger: pl.LazyFrame) -> Iterator[Finding]:
    """Jumps of the score and collapses of the length, per task, in the train phase of each run.

    Args:
        ledger: one row per rollout, from `Dump.scan()`; one row per group is kept in memory.
    """
    groups = (
        ledger.filter(pl.col("phase") == "train", pl.col("step").is_not_null())
        .group_by("run_id", "task", "step", "group_id")
        .agg(pl.col("base_score").mean().alias("score"), pl.col("response_tokens").mean().alias("tokens"))
        .sort("run_id", "task", "step", "group_id")
        .collect(engine="streaming")
    )
    for (_, task), of_task in groups.group_by("run_id", "task", maintain_order=True):
        yield from _jumps(str(task), of_task)
        yield from _collapses(str(task), of_task)


def _jumps(task: str, groups: pl.DataFrame) -> Iterator[Finding]:
    """The largest jump between neighboring windows of steps, if it is significant."""
    score, before, after = pl.col("score"), "before", "after"
    steps = groups.group_by("step", maintain_order=True).agg(
        n=score.count(), total=score.sum(), squares=(score**2).sum()
    )
    sums = pl.col("n", "total", "squares").rolling_sum(_WINDOW)
    windows = steps.select(
        "step",
        sums.shift(1).name.suffix(f"_{before}"),
        sums.shift(1 - _WINDOW).name.suffix(f"_{after}"),
    )
    means = {which: pl.col(f"total_{which}") / pl.col(f"n_{which}") for which in (before, after)}
    jumps = (
        windows.filter(pl.min_horizontal(f"n_{before}", f"n_{after}") >= _FEWEST_GROUPS)
        .select(
            "step",
            rise=means[after] - means[before],
            error=(_error_squared(before, means[before]) + _error_squared(after, means[after])).sqrt(),
        )
        .filter(pl.col("rise") >= _JUMP, pl.col("rise") >= _SIGMAS * pl.col("error"))
        .sort("rise", descending=True, maintain_order=True)
    )
    for step, rise, error in jumps.head(1).iter_rows():
        what = (
            f"the mean score rose by {rise:.2f} within {_WINDOW} steps at step {step}, "
            f"{rise / max(error, 1e-9):.0f} standard errors. Learning is rarely so sudden: compare responses from "
            "before and after"
        )
        place = steps["step"].index_of(step)
        assert place is not None
        first, last = steps["step"][place - _WINDOW], steps["step"][place + _WINDOW - 1]
        near_before = groups.filter(pl.col("step").is_between(first, step, closed="left"))
        near_after = groups.filter(pl.col("step").is_between(step, last))
        shown = (
            *near_before["group_id"].tail(2),
            *near_after.sort("score", descending=True)["group_id"].head(3),
        )
        yield Finding(Sign.JUMP, task, what, shown, rise)


def _error_squared(which: str, mean: pl.Expr) -> pl.Expr:
    """The squared standard error of a window's mean."""
    n, squares = pl.col(f"n_{which}"), pl.col(f"squares_{which}")
    return ((squares - n * mean**2) / (n - 1) / n).clip(lower_bound=0)


def _collapses(task: str, groups: pl.DataFrame) -> Iterator[Finding]:
    measured = groups.drop_nulls("tokens")
    steps = measured["step"].unique().sort()
    third = len(steps) // 3
    if third < 1:
        return
    first = measured.filter(pl.col("step") <= steps[third - 1])
    last = measured.filter(pl.col("step") >= steps[-third])
    if min(first.height, last.height) < _FEWEST_GROUPS:
        return
    rise, error = _difference(first["score"], last["score"])
    long, short = _mean(first["tokens"]), _mean(last["tokens"])
    if rise >= _RISE and rise >= _SIGMAS * error and short <= _COLLAPSE * long:
        what = (
            f"from the first to the last third of the steps the mean score rose by {rise:.2f} while responses shrank "
            f"from {long:.0f} to {short:.0f} tokens: the answers may no longer depend on reasoning"
        )
        shown = (*first["group_id"].head(2), *last["group_id"].tail(3))
        yield Finding(Sign.LENGTH_COLLAPSE, task, what, shown, rise)


def _difference(before: pl.Series, after: pl.Series) -> tuple[float, float]:
    """Difference of the means, and its standard error."""
    error = math.hypot(*(_spread(part) / math.sqrt(len(part)) for part in (before, after)))
    return _mean(after) - _mean(before), error


def _spread(values: pl.Series) -> float:
    return float(values.std() or 0.0)  # type: ignore[arg-type]


def _mean(values: pl.Series) -> float:
    return float(values.mean() or 0.0)  # type: ignore[arg-type]
