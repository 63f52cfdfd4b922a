"""The statistics shown in the report, from the ledger.

Invariant: rates, means and their intervals are those of `statistics`, for headline, tasks and curves; if steps are
merged for a chart, every rollout still counts once. Evaluations are never merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from rg_env.analysis.report.groups import Group
from rg_env.analysis.stats import Measured, statistics
from rg_env.dump import Phase
from rg_env.scoring.types import Status, Violation

Section = dict[str, Any]
"""The statistics of one phase and environment of one run: see `sections`."""

MAX_POINTS = 40
"""Maximum number of points of a chart; neighboring training steps are merged if there are more."""
_SECTION = ("run_id", "phase", "environment")
_NAMES = pl.Schema(dict.fromkeys(_SECTION, pl.String()))
_NAMES_AND_TASK = pl.Schema(dict.fromkeys((*_SECTION, "task"), pl.String()))
LENGTH_BARS = 40
WORST_TASKS = 5
EXAMPLES = 3
"""Failed rollouts shown of each of the worst tasks."""

_CURVES = ("mean_reward", "solve_rate", "format_rate", "no_signal")
_TROUBLE = [f"violation_{violation.value}" for violation in Violation] + [
    f"status_{status.value}" for status in Status if status.is_counted and status is not Status.OK
]


def sections(found: Measured) -> list[Section]:
    """The statistics of every run, phase and environment, in the order run, train, eval.

    Args:
        found: what was measured of the dump.

    Returns:
        of each `run_id`, `phase` and `environment`, `headline`, the row of `statistics(by="phase")`, and tables by
        columns:

        - `tasks`: `statistics(by="task")`;
        - `steps`: a row per point: `step`, `last_step` (equal to `step` unless steps were merged), `groups`,
          `mean_reward`, `solve_rate`, `format_rate` and `no_signal` with their intervals (`…_low`, `…_high`),
          `length_right` and `length_wrong` (medians). Empty if the dump has no steps;
        - `heat`: a row per task and point: `task`, `step`, `last_step`, `solve_rate`, `groups`;
        - `trouble`: a row per point and violation or failed status that occurs: `step`, `last_step`, `what` (its name
          among the statistics), `share` of rollouts;
        - `lengths`: a row per bar: `from`, `to` (tokens), `right`, `wrong`: shares of the correct and of the wrong
          rollouts. Empty if the dump has no token counts.
    """
    points = _in_points(found)
    ends = points.rollouts.select(*_SECTION, "step", "last_step").unique().cast(_NAMES)
    by_point = statistics(points, "step").drop_nulls("step").join(ends, on=[*_SECTION, "step"], maintain_order="left")
    tables = {
        "tasks": statistics(found, "task"),
        "steps": _curves(by_point),
        "heat": _heat(points.groups),
        "trouble": _trouble(by_point),
        "lengths": _histogram(found.rollouts),
    }
    made = []
    headlines = statistics(found, "phase").sort("run_id", pl.col("phase") != Phase.TRAIN.value, "environment")
    for headline in headlines.iter_rows(named=True):
        mine = {name: headline[name] for name in _SECTION}
        parts = {name: table.filter(**mine).drop(_SECTION) for name, table in tables.items()}
        made.append(
            {**mine, "headline": headline, **{name: part.to_dict(as_series=False) for name, part in parts.items()}}
        )
    return made


def worst_tasks(section: Section, shown: Sequence[Group], solved_at: float) -> Iterator[dict[str, Any]]:
    """The tasks with the lowest solve rate at the end of training, the worst first, without solved ones.

    Each has `task`, `solve_rate` and `examples`: the numbers of group and rollout of the worst rollouts of the latest
    groups that have a text and a rollout below `solved_at`, or below the value of the group if it has one.
    """
    columns = (section["tasks"][name] for name in ("task", "solve_rate", "solve_rate_last"))
    at_end = [(overall if last is None else last, task) for task, overall, last in zip(*columns, strict=True)]
    for rate, task in sorted(at_end)[:WORST_TASKS]:
        if rate < 1:
            examples = _failures(shown, (*(section[name] for name in _SECTION), task), solved_at)
            yield {"task": task, "solve_rate": rate, "examples": list(examples)}


def _failures(shown: Sequence[Group], wanted: tuple[str, ...], solved_at: float) -> Iterator[tuple[int, int]]:
    found = 0
    for number in reversed(range(len(shown))):
        group = shown[number]
        if tuple(group[name] for name in (*_SECTION, "task")) != wanted or "prompt" not in group or found == EXAMPLES:
            continue
        scores = [rollout["base_score"] or 0.0 for rollout in group["rollouts"]]  # null: not finite
        if min(scores) < (solved_at if group["solved_at"] is None else group["solved_at"]):
            found += 1
            yield number, scores.index(min(scores))


def _in_points(found: Measured) -> Measured:
    """The same, with neighboring training steps merged into at most `MAX_POINTS`: from `step` to `last_step`."""
    step = pl.col("step")
    rank = step.rank("dense").over(_SECTION)
    in_training = pl.col("phase") == Phase.TRAIN.value
    width = pl.when(in_training).then((rank.max().over(_SECTION) - 1) // MAX_POINTS + 1).otherwise(1)
    of_step = found.groups.select(*_SECTION, "step").unique().with_columns(point=(rank - 1) // width)
    ends = of_step.with_columns(
        first_step=step.min().over(*_SECTION, "point"), last_step=step.max().over(*_SECTION, "point")
    )

    def merged(frame: pl.DataFrame) -> pl.DataFrame:
        place = frame.select(*_SECTION, "step").join(
            ends, on=[*_SECTION, "step"], how="left", nulls_equal=True, maintain_order="left"
        )
        return frame.with_columns(step=place["first_step"], last_step=place["last_step"])

    return replace(found, rollouts=merged(found.rollouts), groups=merged(found.groups))


def _curves(by_point: pl.DataFrame) -> pl.DataFrame:
    return by_point.select(
        *_SECTION,
        "step",
        "last_step",
        "groups",
        *(f"{name}{bound}" for name in _CURVES for bound in ("", "_low", "_high")),
        length_right="tokens_right_p50",
        length_wrong="tokens_wrong_p50",
    ).sort("step")


def _heat(groups: pl.DataFrame) -> pl.DataFrame:
    solved, count = (pl.col(f"solve_rate:{part}").sum() for part in ("total", "count"))
    return (
        groups.drop_nulls("step")
        .group_by(*_SECTION, "task", "step", "last_step")
        .agg(solve_rate=solved / count, groups=pl.len())
        .cast(_NAMES_AND_TASK)
        .sort("task", "step")
    )


def _trouble(by_point: pl.DataFrame) -> pl.DataFrame:
    index = [*_SECTION, "step", "last_step"]
    shares = by_point.unpivot(_TROUBLE, index=index, variable_name="what", value_name="share")
    return shares.filter(pl.col("share").sum().over(*_SECTION, "what") > 0).sort("step", "what")


def _histogram(rollouts: pl.DataFrame) -> pl.DataFrame:
    length, solved = pl.col("response_tokens"), pl.col("solved")
    width = ((length.max() - 1) // LENGTH_BARS + 1).clip(1).over(_SECTION)
    known = rollouts.select(*_SECTION, "response_tokens", "solved").drop_nulls("response_tokens")
    bars = known.group_by(*_SECTION, (length // width * width).alias("from"), width.alias("width")).agg(
        right=solved.sum(), wrong=(~solved).sum()
    )
    shares = {
        kind: pl.when(pl.col(kind).sum().over(_SECTION) > 0).then(pl.col(kind) / pl.col(kind).sum().over(_SECTION))
        for kind in ("right", "wrong")
    }
    return bars.with_columns(**shares, to=pl.col("from") + pl.col("width")).drop("width").cast(_NAMES).sort("from")
