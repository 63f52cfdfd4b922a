"""Builds the record of a group from its verdicts and rewards; the same for every source of responses.

Invariant: text, score and reward of a recorded rollout come from one `Rollout` and its `RolloutReward`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rg_env.dump.schema import GroupRecord, Phase, RolloutRecord, answered, group_id, has_no_signal, outcome_of
from rg_env.rewards import Rollout, RolloutReward
from rg_env.rollouts.stopwatch import Stopwatch
from rg_env.scoring.types import Status
from rg_env.tasks import Item


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a group comes from; see `GroupFacts`."""

    run_id: str
    attempt: int
    phase: Phase
    step: int | None
    call: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """The question of another environment than ours; see `GroupFacts`."""

    environment: str
    task: str
    id: str


def group_record(
    origin: Origin,
    item: Item | Prompt,
    uid: str,
    group: Sequence[Rollout],
    rewards: Sequence[RolloutReward],
    solved_at: float,
    policy_version: str = "",
) -> GroupRecord:
    """The record of a group.

    Args:
        item: the question, or the prompt of another environment.
        uid: the prompt's id; unique within a call.
        group: the rollouts, and `rewards` one for each.
        solved_at: a rollout with at least this base score is correct.
        policy_version: of the weights that generated the responses; "" if unknown.
    """
    rollouts = [rollout_record(*pair, policy_version) for pair in zip(group, rewards, strict=True)]
    counted = answered(rollouts)
    return GroupRecord(
        item_id=item.task,
        item=item.id,
        run_id=origin.run_id,
        attempt=origin.attempt,
        phase=origin.phase,
        step=origin.step,
        call=origin.call,
        uid=uid,
        group_id=group_id(origin.run_id, origin.attempt, origin.phase, origin.call, uid),
        task=item.task,
        **(_facts_of_item(item, group) if isinstance(item, Item) else _facts_of_prompt(item, solved_at)),
        outcome=outcome_of([rollout.base_score for rollout in counted], solved_at),
        no_signal=has_no_signal([rollout.reward for rollout in counted]),
        rollouts=rollouts,
        **_times([rollout.stopwatch for rollout in group if rollout.stopwatch]),
    )


def _facts_of_item(item: Item, group: Sequence[Rollout]) -> dict[str, Any]:
    return {
        "task_config": item.config_json,
        "level": item.level or "",
        "complexity": item.complexity,
        "baseline": max(rollout.verdict.scored.baseline for rollout in group),
        "entry": item.entry_json,
    }


def _facts_of_prompt(prompt: Prompt, solved_at: float) -> dict[str, Any]:
    return {"environment": prompt.environment, "solved_at": solved_at}


def _times(watches: Sequence[Stopwatch]) -> dict[str, Any]:
    """The fields of a group that say when it was generated and how long that took."""
    if not watches:
        return {}
    return {
        "started_at": round(min(watch.began for watch in watches), 3),
        "ended_at": round(max(watch.ended for watch in watches), 3),
        "generation_seconds": round(sum(watch.generation for watch in watches), 6),
        "scoring_seconds": round(sum(watch.scoring for watch in watches), 6),
    }


def rollout_record(rollout: Rollout, computed: RolloutReward, policy_version: str) -> RolloutRecord:
    """The record of one rollout; arguments as for `group_record`."""
    parsed, scored = rollout.verdict.parsed, rollout.verdict.scored
    failed = computed.reward_error and scored.status is Status.OK
    return RolloutRecord(
        conversation=[{key: storable(text) for key, text in message.items()} for message in rollout.conversation],
        score=float(computed.score),
        reward=float(computed.reward),
        base_score=float(scored.score),
        raw_score=scored.raw,
        tagged_score=scored.tagged,
        violation=parsed.violation or "",
        status=Status.REWARD_ERROR if failed else scored.status,
        detail=storable(computed.reward_error if failed else scored.detail),
        answer=storable(parsed.answer or ""),
        response_tokens=rollout.response_tokens,
        stop_reason=rollout.stop_reason or "",
        truncated=rollout.stop_reason == "length",
        penalty_factor=computed.penalty_factor,
        repetition=rollout.repetition,
        policy_version=policy_version,
        normalized=scored.normalized,
        custom_reward=computed.custom_reward,
        turns=None if rollout.turns is None else len(rollout.turns),
        each_turn="" if rollout.turns is None else json.dumps(rollout.turns),
    )


def storable(text: str) -> str:
    """The text with `?` for what UTF-8 cannot hold: lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text
