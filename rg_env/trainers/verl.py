"""Reasoning Gym for verl: `compute_score` as its reward function, on rows that `rg-env dataset --format verl` writes.

    reward.custom_reward_function.path=…/rg_env/trainers/verl.py

Invariant: the score is that of the answer. verl has no word for a response that was not scored, so a failure of the
machine, after another try, raises: a run must stop rather than train on zeros. Not covered: groups, which verl shows to
no reward function, and therefore length penalties, `reward` and dumps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rg_env.base.errors import ScorerPoolError
from rg_env.configuration.config import RGDumpConfig
from rg_env.rollouts.judge import Judge
from rg_env.tasks import Item

_TRIES = 3


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    format: str = RGDumpConfig.format,
    prefilled_think: bool = RGDumpConfig.prefilled_think,
    **_: Any,
) -> dict[str, Any]:
    """Score a response.

    Args:
        data_source: the task's name; the item itself is in `extra_info`, with which `ground_truth` is not needed.
        solution_str: the response.
        extra_info: the column of that name.
        format, prefilled_think: the settings of these names; verl takes them from `reward_kwargs`.

    Returns:
        `score`, the base score in [0, 1], which verl trains on; `acc`, whether it is solved; `violation` and `status`.

    Raises:
        ConfigError: the row has no item. ScorerPoolError: the answer could not be scored.
    """
    # From the row: verl hands over the right answer only, and the scorer needs the whole item.
    item = Item.from_extra_info(extra_info)
    judge = Judge(RGDumpConfig(format=format, prefilled_think=prefilled_think))
    # Not for the answer's faults: those are not excused, and score 0 at once.
    for _try in range(_TRIES):
        verdict = judge.score_blocking(item, solution_str)
        if not verdict.scored.excused:
            break
    else:
        raise ScorerPoolError(f"{item.id}: {verdict.scored.status}: {verdict.scored.detail}")
    score, violation = verdict.scored.score, verdict.parsed.violation
    return {
        "score": score,
        "acc": float(score >= judge.config.solved_at),
        "violation": violation.value if violation else "",
        "status": verdict.scored.status.value,
    }
