"""How fast a run was: tokens per second, the share of scoring, and the time of a step.

Invariant: wall time during which several groups are in progress counts once; groups without measured times count in no
figure.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from rg_env.dump.schema import Phase

PACE = ("tokens_per_second", "scoring_share", "rollout_seconds", "step_seconds")
"""The figures, as `statistics` describes them."""

_STEP = ("run_id", "phase", "attempt", "step")


def pace(groups: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """`PACE` for each value of the keys that has groups with times.

    Args:
        groups: those of `stats.Measured`, with the keys.
    """
    timed = groups.drop_nulls(["started_at", "ended_at"])
    seconds = pl.col("generation_seconds", "scoring_seconds").cast(pl.Float64)
    start, end, step = pl.col("started_at"), pl.col("ended_at"), list(dict.fromkeys([*keys, *_STEP]))
    busy = end - pl.max_horizontal(start, end.cum_max().shift().over(keys))
    whole = (
        timed.with_columns(seconds, tokens=pl.col("mean_response_tokens:total"))
        .sort("started_at")
        .with_columns(busy=busy.clip(0))
        .group_by(keys)
        .agg(
            pl.col("tokens", "busy").sum(),
            pl.col("scoring_seconds").sum(),
            both=(pl.col("generation_seconds") + pl.col("scoring_seconds")).sum(),
        )
        .select(
            *keys,
            tokens_per_second=pl.when(pl.min_horizontal("tokens", "busy") > 0).then(pl.col("tokens") / pl.col("busy")),
            scoring_share=pl.when(pl.col("both") > 0).then(pl.col("scoring_seconds") / pl.col("both")),
        )
    )
    in_steps = timed.drop_nulls("step")
    later = {name: pl.col(name).shift(-1).over("run_id", "phase", "attempt") for name in ("step", "started_at")}
    step_times = (  # from the first group of a training step to that of the next one in the same attempt
        in_steps.filter(pl.col("phase").cast(pl.String).str.split(" ").list.first() == Phase.TRAIN.value)
        .group_by(_STEP)
        .agg(start.min())
        .sort("step")
        .with_columns(step_seconds=(later["started_at"] - start) / (later["step"] - pl.col("step")))
    )
    steps = in_steps.group_by(step).agg(rollout_seconds=end.max() - start.min())
    steps = steps.join(step_times.drop("started_at"), on=_STEP, how="left")
    medians = steps.group_by(keys).agg(pl.col("rollout_seconds", "step_seconds").median())
    return whole.join(medians, on=list(keys), how="left", nulls_equal=True)
