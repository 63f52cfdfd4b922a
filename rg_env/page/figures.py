"""The figures of the report: the statistics of each section, and the trainer's own numbers.

Invariant: rates, means and their intervals are those of `statistics`, for headline, tasks and curves; if steps are
merged for a chart, every rollout still counts once. Evaluations are never merged: but for curves and heat map, all
figures of an evaluation are of the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from rg_env.analysis.stats import Measured, counts, statistics
from rg_env.dump import Phase
from rg_env.scoring.types import Status

MAX_POINTS = 40
"""Maximum number of points of a chart; neighboring training steps are merged if there are more."""
LENGTH_BARS = 40

_SECTION = ("run_id", "phase", "environment")
_POINT = ("step", "last_step")
_CURVES = ("mean_reward", "solve_rate", "format_rate", "no_signal")
_TRAINER = {
    "policy/final_loss": "loss",
    "policy/policy_kl": "KL",
    "loss/avg_kl": "KL in the reward",
    "policy/policy_entropy": "entropy",
    "policy/grad_norm": "gradient norm",
}
"""The numbers of SkyRL that are shown, and what the page calls them."""


def sections(measured: Measured, alike: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the statistics of every run, phase and environment, in the order in which runs were read, train before
    eval.

    Each has `run_id`, `phase`, `environment`, `headline` (its row of `statistics`, and as `solved_at` the scores from
    which its rollouts are solved: one, unless groups differ) and tables by columns: `tasks`;
    `steps`, a row per point of the curves, with medians of lengths; `heat`, the solve rate per task and point;
    `counts`, of violations and statuses, and `trouble`, the same per point; `lengths`, a row per bar, with shares of
    the correct and of the wrong rollouts. A point goes from `step` to `last_step`, of training several steps if there
    are more than `MAX_POINTS`. What the dump does not know is empty.

    Args:
        alike: a number for each run; those with equal ones have equal points, because the page draws their mean.
    """
    points = _points(measured.groups, alike)
    merged = replace(measured, groups=_merge(measured.groups, points))
    ends = points.select(*_SECTION, *_POINT).unique()
    by_point = statistics(merged, "step").join(named(ends), on=[*_SECTION, "step"])
    curves = [f"{name}{bound}" for name in _CURVES for bound in ("", "_low", "_high")]
    steps = by_point.select(*_SECTION, *_POINT, "groups", *curves, "tokens_right_p50", "tokens_wrong_p50")
    trouble = counts(merged, "step").filter(pl.col("value") != Status.OK.value).drop_nulls("step")
    tables = {
        "tasks": statistics(measured, "task"),
        "steps": steps.sort("step"),
        "heat": _heat(merged.groups),
        "counts": counts(measured),
        "trouble": trouble,
        "lengths": _lengths(measured.counts_by(_SECTION)),
    }
    headlines = statistics(measured, "phase")
    # `rle_id` numbers the runs as they come: they stay in the order of reading, not in that of their names.
    headlines = headlines.sort(pl.col("run_id").rle_id(), pl.col("phase") != Phase.TRAIN.value, maintain_order=True)
    result = []
    for headline in headlines.iter_rows(named=True):
        section = {name: headline[name] for name in _SECTION}
        solved_at = measured.groups.filter(**section)["solved_at"].unique().sort().to_list()
        shown: dict[str, Any] = section | {"headline": headline | {"solved_at": solved_at}}
        for name, table in tables.items():
            shown[name] = table.filter(**section).drop(_SECTION).to_dict(as_series=False)
        result.append(shown)
    return result


def trainer_numbers(
    measured: Measured, numbers: Mapping[tuple[str, int], Mapping[str, float | None]], alike: Mapping[str, int]
) -> dict[str, list[Any]]:
    """Return the trainer's own numbers (of `step_numbers`) at the training steps of `measured`, with points as in
    `sections`, and with its `alike`.

    A table by columns with a row per run, name and point: the mean `value`, the smallest `low`, the largest `high`.
    """
    rows = []
    for (run_id, step), values in numbers.items():
        for name, label in _TRAINER.items():
            rows.append((run_id, step, label, values.get(name)))
    names = pl.Enum(_TRAINER.values())
    schema = pl.Schema({"run_id": pl.String(), "own_step": pl.Int64(), "name": names, "value": pl.Float64()})
    known = pl.DataFrame(rows, schema, orient="row").drop_nulls("value")
    # These numbers are of a run's step, whatever the environments in it, so all of training is one section.
    training = measured.groups.filter(pl.col("phase") == Phase.TRAIN.value).with_columns(environment=pl.lit(""))
    # Steps that the charts merge are one point, with the mean of their values.
    with_points = known.join(named(_points(training, alike)), on=["run_id", "own_step"])
    value = pl.col("value")
    merged = with_points.group_by("run_id", "name", *_POINT).agg(value.mean(), low=value.min(), high=value.max())
    return merged.sort("run_id", "name", "step").to_dict(as_series=False)


def _points(groups: pl.DataFrame, alike: Mapping[str, int]) -> pl.DataFrame:
    """Return the points of charts: for each section and step (`own_step`) the first and the last step that are shown as
    one, `step` and `last_step`; training has at most `MAX_POINTS`.
    """
    step, together = pl.col("own_step"), ("together", "phase", "environment")
    numbers = {run_id: str(number) for run_id, number in alike.items()}
    rank = step.rank("dense").over(together)
    in_training = pl.col("phase") == Phase.TRAIN.value
    # How many steps a point has: the least with which there are not too many points; an evaluation is its own point.
    count = rank.max().over(together)
    width = pl.when(in_training).then((count - 1) // MAX_POINTS + 1).otherwise(1)
    steps = groups.select(*_SECTION, own_step="step").drop_nulls("own_step").unique()
    steps = steps.with_columns(together=pl.col("run_id").cast(pl.String).replace(numbers))
    return steps.with_columns(point=(rank - 1) // width).with_columns(
        step=step.min().over(*together, "point"), last_step=step.max().over(*together, "point")
    )


def _merge(frame: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with the first and last step of their point in place of their own; null if they have none."""
    own = frame.select(*_SECTION, own_step="step")
    place = own.join(points, on=[*_SECTION, "own_step"], how="left", maintain_order="left")
    return frame.with_columns(place.select(*_POINT))


def named(frame: pl.DataFrame) -> pl.DataFrame:
    """With names as texts, not categories."""
    return frame.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))


def _heat(groups: pl.DataFrame) -> pl.DataFrame:
    """Return the solve rate of each task at each point."""
    solved, count = (pl.col(f"solve_rate:{part}").sum() for part in ("total", "count"))
    cells = groups.drop_nulls("step").group_by(*_SECTION, "task", *_POINT)
    return named(cells.agg(solve_rate=solved / count, groups=pl.len())).sort("task", "step")


def _lengths(counts: pl.DataFrame) -> pl.DataFrame:
    """Return the bars of the histogram of lengths: which share of the correct and of the wrong rollouts is in each."""
    length, solved = pl.col("response_tokens"), pl.col("solved")
    # Tokens for each bar: the least with which there are not too many bars.
    width = ((length.max() - 1) // LENGTH_BARS + 1).clip(1).over(_SECTION)
    known = counts.drop_nulls("response_tokens")
    number = pl.col("rollouts")
    start = (length // width * width).alias("from")
    of_sides = {"right": number.filter(solved).sum(), "wrong": number.filter(~solved).sum()}
    bars = known.group_by(*_SECTION, start, to=start + width).agg(**of_sides)
    sides = pl.col("right", "wrong")
    total = sides.sum().over(_SECTION)
    return named(bars.with_columns(pl.when(total > 0).then(sides / total))).sort("from")
