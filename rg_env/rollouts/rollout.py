"""A rollout from the slot to its record: one `Rollout`, which is made, filled, judged and recorded in this order.

1. **made**: an empty `Rollout` for each response that is asked for. In SkyRL `rg_env.skyrl.groups.with_slots` makes it.
2. **filled**: text and verdict by the environment (`rg_env.skyrl.env`), and what only SkyRL's output knows by
   `rg_env.skyrl.groups.fill_groups`. `evaluate/` and `trainers/` do both themselves.
3. **judged**: score, reward and mask, by the rules of its group (`rg_env.rollouts.rewards.set_rewards`).
4. **recorded**: `group_record`, in this file, for SkyRL, TRL, `collect` and `eval`.

Invariant: text, score and reward of a recorded rollout come from one `Rollout`. No files, no processes, no SkyRL.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rg_env.base.wording import storable
from rg_env.dump.schema import GroupRecord, Message, Phase, RolloutRecord, answered, group_id, has_no_signal, outcome_of
from rg_env.scoring.types import Status, Verdict
from rg_env.tasks import Item


class Stopwatch:
    """Measures how long a response and its scoring took; started when the response is requested.

    `ended` is never before `began`, also if the machine's clock is set back meanwhile.

    Attributes:
        began, ended: in seconds since 1970-01-01 UTC; `ended` is the end of the last phase that was measured.
        generation, scoring: seconds of the two phases; 0 until they have ended.
    """

    __slots__ = ("_last", "began", "ended", "generation", "scoring")

    def __init__(self) -> None:
        self.began = self.ended = time.time()  # for people; the seconds come from the monotonic clock
        self.generation = self.scoring = 0.0
        self._last = time.monotonic()

    def end_generation(self) -> None:
        """Note that the response is there; scoring begins."""
        self.generation = self._lap()

    def end_scoring(self) -> None:
        """Note that the verdict is there."""
        self.scoring = self._lap()

    def _lap(self) -> float:
        # The monotonic clock, which nobody sets back while a response is on its way.
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        self.ended += seconds
        return seconds


@dataclass(slots=True, eq=False, repr=False)
class Rollout:
    """One response to a question, from the request to the record: each stage sets here what it learns.

    Attributes:
        verdict: the scores of its text alone.
        response_tokens: length of the response, in tokens; None if unknown, which gets no length penalty.
        stop_reason: as SkyRL gives it (`stop`, `length`, …); None if it gives none.
        conversation: the prompt, then the response as it was scored.
        repetition: number of the sample within its group, from 0.
        stopwatch: measured its generation and scoring; None if nobody did.
        item: the question.
        text: the response as the environment got it.
        turns: `tokens` and `stop_reason` of every turn of the assistant, where there may be several; else None.
        score: base score × penalty_factor, in [0, 1]. It and `reward` and `masked` are set by the rules of the group.
        reward: what SkyRL trains on.
        masked: whether the rollout is kept out of the loss, because there is no response, or its scorer died, cannot
            score the item, or got no CPU time, or the user's function failed, or another environment's reward is not
            finite.
        penalty_factor: in [0, 1].
        custom_reward: what the user's function returned for it; None without one.
        reward_error: one line saying how that function failed for the group; empty if it did not.
    """

    verdict: Verdict = field(default_factory=lambda: Verdict.no_response("the rollout failed before it was scored"))
    response_tokens: int | None = None
    stop_reason: str | None = None
    conversation: Sequence[Message] = ()
    repetition: int = 0
    stopwatch: Stopwatch | None = None
    item: Item | None = None
    text: str = ""
    turns: list[dict[str, Any]] | None = None
    score: float = field(init=False)
    reward: float = field(init=False)
    masked: bool = field(init=False)
    penalty_factor: float = 1.0
    custom_reward: float | None = None
    reward_error: str = ""

    @property
    def entry(self) -> Mapping[str, Any]:
        """Reasoning Gym's entry: `question`, `answer`, `metadata`. Empty if there is none."""
        return self.item.entry if self.item is not None else {}

    @property
    def seconds(self) -> float | None:
        """Seconds that the response took, without its scoring; None if nobody measured it."""
        if self.stopwatch is None:
            return None
        return self.stopwatch.generation or None  # 0 until the phase has ended

    @property
    def responded(self) -> bool:
        """Whether there is a response."""
        return self.verdict.scored.status is not Status.NO_RESPONSE

    @property
    def stopped(self) -> bool:
        """Whether the model ended the response itself."""
        return self.stop_reason in (None, "stop")


# --------------------------------------------------------------------------------------------------------- the record
@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of a group; see `GroupFacts` and, for `policy_version`, `RolloutFacts`."""

    run_id: str
    attempt: int
    phase: Phase
    step: int | None
    call: int
    policy_version: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The question of another environment than ours; see `GroupFacts`."""

    environment: str
    task: str
    id: str


def group_record(
    origin: Origin,
    question: Item | Prompt,
    uid: str,
    group: Sequence[Rollout],
    solved_at: float,
) -> GroupRecord:
    """Make the record of a group.

    Args:
        question: the item, or the prompt of another environment.
        uid: the prompt's id; unique within a call.
        group: the rollouts, after the rules of the group.
        solved_at: a rollout with at least this base score is correct.
    """
    rollouts = [_rollout_record(rollout, origin.policy_version) for rollout in group]

    # Of the question: Reasoning Gym's fields for our items only, since unknown is not 0.
    facts: dict[str, Any]
    if isinstance(question, Prompt):
        facts = {"environment": question.environment, "solved_at": solved_at}
    else:
        facts = {
            "task_config": question.config_json,
            "level": question.level or "",
            "complexity": question.complexity,
            # A rollout that was not scored has a baseline of 0, and the others have that of the item.
            "baseline": max(rollout.verdict.scored.baseline for rollout in group),
            "entry": question.entry_json,
        }

    # Of time: from the first request to the last verdict, and the seconds of all rollouts together.
    if watches := [rollout.stopwatch for rollout in group if rollout.stopwatch]:
        facts["started_at"] = round(min(watch.began for watch in watches), 3)
        facts["ended_at"] = round(max(watch.ended for watch in watches), 3)
        facts["generation_seconds"] = round(sum(watch.generation for watch in watches), 6)
        facts["scoring_seconds"] = round(sum(watch.scoring for watch in watches), 6)

    # Of the rewards: a request that failed says nothing about the model.
    responses = answered(rollouts)
    outcome = outcome_of([rollout.base_score for rollout in responses], solved_at)
    no_signal = has_no_signal([rollout.reward for rollout in responses])
    return GroupRecord(
        item_id=question.task,
        item=question.id,
        run_id=origin.run_id,
        attempt=origin.attempt,
        phase=origin.phase,
        step=origin.step,
        call=origin.call,
        uid=uid,
        group_id=group_id(origin.run_id, origin.attempt, origin.phase, origin.call, uid),
        task=question.task,
        outcome=outcome,
        no_signal=no_signal,
        rollouts=rollouts,
        **facts,
    )


def _rollout_record(rollout: Rollout, policy_version: str) -> RolloutRecord:
    parsed, scored = rollout.verdict.parsed, rollout.verdict.scored
    # A failure of the scorer comes first: the user's function may have failed because of it.
    status, detail = scored.status, scored.detail
    if rollout.reward_error and status is Status.OK:
        status, detail = Status.REWARD_ERROR, rollout.reward_error
    conversation: list[Message] = []
    for message in rollout.conversation:
        conversation.append({key: storable(text) for key, text in message.items()})
    turns, each_turn = None, ""
    if rollout.turns is not None:
        turns, each_turn = len(rollout.turns), json.dumps(rollout.turns)
    return RolloutRecord(
        conversation=conversation,
        score=float(rollout.score),
        reward=float(rollout.reward),
        base_score=float(scored.score),
        raw_score=scored.raw,
        tagged_score=scored.tagged,
        violation=parsed.violation or "",
        status=status,
        detail=storable(detail),
        answer=storable(parsed.answer or ""),
        response_tokens=rollout.response_tokens,
        stop_reason=rollout.stop_reason or "",
        truncated=rollout.stop_reason == "length",
        penalty_factor=rollout.penalty_factor,
        repetition=rollout.repetition,
        policy_version=policy_version,
        normalized=scored.normalized,
        custom_reward=rollout.custom_reward,
        turns=turns,
        masked=rollout.masked,
        each_turn=each_turn,
    )
