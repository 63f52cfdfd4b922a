"""How fast a run was: tokens per second, the share of scoring, and the time of a step.

Invariant: wall time during which several groups are in progress counts once; groups whose times nobody measured count
in no figure.
"""

from __future__ import annotations

import polars as pl

from rg_env.dump.read.frames import GROUP_INDEX
from rg_env.dump.schema import Phase

COLUMNS = ("tokens_per_second", "scoring_share", "rollout_seconds", "step_seconds")
"""The figures, as `statistics` describes them."""

_STEP = ("run_id", "phase", "attempt", "step")
_TIMES = ("started_at", "ended_at", "generation_seconds", "scoring_seconds")


def pace(rollouts: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """`COLUMNS` for each value of the keys that has groups with times.

    Args:
        rollouts: those of a sample, with the keys.
    """
    timed = rollouts.drop_nulls(["started_at", "ended_at"])
    names = list(dict.fromkeys([*keys, *_STEP, *_TIMES]))
    groups = (
        timed.group_by(GROUP_INDEX)
        .agg(pl.col(*names).first(), pl.col("response_tokens").sum())
        .with_columns(pl.col(*_TIMES).cast(pl.Float64))
    )
    busy = pl.col("ended_at") - pl.max_horizontal("started_at", pl.col("earlier"))
    whole = (
        groups.sort("started_at")
        .with_columns(earlier=pl.col("ended_at").cum_max().shift().over(keys))
        .group_by(keys)
        .agg(
            tokens=pl.col("response_tokens").sum(),
            busy=busy.clip(0).sum(),
            scoring=pl.col("scoring_seconds").sum(),
            both=(pl.col("generation_seconds") + pl.col("scoring_seconds")).sum(),
        )
        .select(
            *keys,
            tokens_per_second=pl.when(pl.min_horizontal("tokens", "busy") > 0).then(pl.col("tokens") / pl.col("busy")),
            scoring_share=pl.when(pl.col("both") > 0).then(pl.col("scoring") / pl.col("both")),
        )
    )
    steps = (
        groups.drop_nulls("step")
        .group_by(list(dict.fromkeys([*keys, *_STEP])))
        .agg(rollout_seconds=pl.col("ended_at").max() - pl.col("started_at").min())
        .join(_step_times(groups), on=_STEP, how="left")
    )
    medians = steps.group_by(keys).agg(pl.col("rollout_seconds", "step_seconds").median())
    return whole.join(medians, on=keys, how="left", nulls_equal=True)


def _step_times(groups: pl.DataFrame) -> pl.DataFrame:
    """The time from the first group of a training step to that of the next one in the same attempt."""
    later = {name: pl.col(name).shift(-1).over("run_id", "attempt") for name in ("step", "started_at")}
    return (
        groups.filter(pl.col("phase") == Phase.TRAIN.value)
        .drop_nulls("step")
        .group_by(_STEP)
        .agg(pl.col("started_at").min())
        .sort("step")
        .with_columns(
            step_seconds=(later["started_at"] - pl.col("started_at")) / (later["step"] - pl.col("step")),
        )
        .drop("started_at")
    )
