"""From the verdicts of a group to its rewards. Pure: no files, no processes, no SkyRL.

The order is fixed: base score → penalty factor → score → reward. A penalty never changes a group's outcome, because
the outcome depends on base scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rg_env.config import RGDumpConfig
from rg_env.dump.schema import Message
from rg_env.errors import RGEnvError, describe, one_line
from rg_env.rollouts.stopwatch import Stopwatch
from rg_env.scoring.length import Group, LengthPenaltyConfig, group_penalty
from rg_env.scoring.parse import parse_response
from rg_env.scoring.types import AnswerScore, Status, Verdict
from rg_env.tasks import Item

RewardFunction = Callable[[Sequence[Verdict]], Sequence[float]]
"""Maps the verdicts of a group, without rollouts that are kept out of the loss, to one finite number each."""

_NO_PENALTY = LengthPenaltyConfig(kind="none")


def _not_reached() -> Verdict:
    return Verdict.no_response("the rollout failed before it was scored")


@dataclass(slots=True)
class Rollout:
    """One response to a question, from the request to the record: whoever learns something about it sets it here.

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
    """

    verdict: Verdict = field(default_factory=_not_reached)
    response_tokens: int | None = None
    stop_reason: str | None = None
    conversation: Sequence[Message] = ()
    repetition: int = 0
    stopwatch: Stopwatch | None = None
    item: Item | None = None
    text: str = ""
    turns: list[dict[str, Any]] | None = None

    @property
    def responded(self) -> bool:
        """Whether there is a response."""
        return self.verdict.scored.status is not Status.NO_RESPONSE

    @property
    def stopped(self) -> bool:
        """Whether the model ended the response itself."""
        return self.stop_reason in (None, "stop")


@dataclass(frozen=True, slots=True)
class RolloutReward:
    """The score and the reward of one rollout after the rules of its group.

    Attributes:
        score: base score × penalty_factor, in [0, 1].
        penalty_factor: in [0, 1].
        reward: what SkyRL trains on.
        masked: True if the rollout is kept out of the loss, because there is no response, or its scorer died, cannot
            score the item, or got no CPU time.
        custom_reward: what the user's function returned for it; None without one.
        reward_error: one line saying how that function failed; it is empty if it did not. Then all rollouts of the
            group are kept out of the loss.
    """

    score: float
    penalty_factor: float
    reward: float
    masked: bool
    custom_reward: float | None = None
    reward_error: str = ""


def compose_reward(score: float, well_formed: bool, config: RGDumpConfig, addition: float = 0.0) -> float:
    """The reward of one rollout: the score plus format bonus and additive penalty."""
    return score + (config.format_bonus if well_formed else 0.0) + addition


def group_rewards(
    group: Sequence[Rollout],
    config: RGDumpConfig,
    *,
    max_length: int,
    penalize: bool,
    zero_on_non_stop: bool = False,
    reward_function: RewardFunction | None = None,
) -> list[RolloutReward]:
    """Apply the group's rules.

    Args:
        group: the rollouts of one prompt.
        config: the settings.
        max_length: length in tokens at which the length penalty is complete, unless the settings have one.
        penalize: False outside the train phase: no length penalty.
        zero_on_non_stop: SkyRL's `generator.zero_reward_on_non_stop`, applied to the reward as SkyRL does.
        reward_function: its values replace the base scores in the rewards. Outcome and score do not depend on it.

    Returns:
        one `RolloutReward` per rollout, in order. A rollout is masked if its status is not counted, if its scorer got
        no CPU time, and with `on_scorer_failure=mask` if its scorer died or cannot score the item. An answer that used
        up its CPU seconds, or on which the scorer raised, is wrong, not masked. A masked rollout gets the mean reward
        of the others, so that it changes neither the group's mean nor, being masked, any weight.
    """
    mask_failures = config.on_scorer_failure == "mask"
    failed = [
        not scored.status.is_counted or scored.starved or (mask_failures and scored.excused)
        for scored in (rollout.verdict.scored for rollout in group)
    ]
    sound = [rollout for rollout, bad in zip(group, failed, strict=True) if not bad]
    scores = [rollout.verdict.scored.score for rollout in sound]
    penalty = group_penalty(
        config.length_penalty if penalize else _NO_PENALTY,
        Group(
            scores,
            [rollout.response_tokens or 0 for rollout in sound],
            [score >= config.solved_at for score in scores],
        ),
        max_length,
    )
    custom: Sequence[float | None] = [None] * len(sound)
    error = ""
    if reward_function is not None and sound:
        custom, error = _custom_rewards(reward_function, [rollout.verdict for rollout in sound])
    rewards = []
    for rollout, factor, addition, value in zip(sound, penalty.factors, penalty.additions, custom, strict=True):
        score = rollout.verdict.scored.score * factor
        value_or_score = score if value is None else value * factor
        reward = compose_reward(value_or_score, rollout.verdict.parsed.violation is None, config, addition)
        if error or (zero_on_non_stop and not rollout.stopped):
            reward = 0.0
        rewards.append(RolloutReward(score, factor, reward, bool(error), value, error))
    neutral = RolloutReward(0.0, 1.0, _mean([one.reward for one in rewards]), masked=True)
    remaining = iter(rewards)
    return [neutral if bad else next(remaining) for bad in failed]


def try_reward_function(function: RewardFunction) -> None:
    """Call a reward function on a made-up group: a right answer, a wrong one, and a response without the format.

    Raises:
        RGEnvError: it raises, or does not return one finite number for each.
    """
    responses = {
        "<think>2 + 2</think><answer>4</answer>": 1.0,
        "<think>2 + 2</think><answer>5</answer>": 0.0,
        "4": None,
    }
    verdicts = [
        Verdict(parse_response(text), AnswerScore(score, score, score or 0.0, Status.OK))
        for text, score in responses.items()
    ]
    _, error = _custom_rewards(function, verdicts)
    if error:
        raise RGEnvError(error)


def _mean(rewards: Sequence[float]) -> float:
    """0 if there are none. Of equal rewards exactly the same, so that their group still gives no signal."""
    if len(set(rewards)) <= 1:
        return next(iter(rewards), 0.0)
    return sum(rewards) / len(rewards)


def _custom_rewards(function: RewardFunction, verdicts: Sequence[Verdict]) -> tuple[Sequence[float | None], str]:
    """The values of the user's function, or None for each and what is wrong."""
    try:
        values = [float(value) for value in function(verdicts)]
    except Exception as error:  # user code can raise anything
        return [None] * len(verdicts), one_line(error) if isinstance(error, RGEnvError) else describe(error)
    if len(values) != len(verdicts):
        return [None] * len(verdicts), f"the reward function returned {len(values)} values for {len(verdicts)} rollouts"
    if not all(map(math.isfinite, values)):
        return [None] * len(verdicts), "the reward function returned a value that is not finite"
    return values, ""
