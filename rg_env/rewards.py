"""A rollout from the response to its record: `Rollout`, the rules of its group, and the record of both.

The order is fixed: base score → penalty factor → score → reward. A penalty never changes a group's outcome, because
the outcome depends on base scores. Text, score and reward of a recorded rollout come from one `Rollout`. Reading and
every kind of training share this: no files, no processes, no SkyRL. What a user's function says comes from
`RewardFunction`, which has a thread of its own.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from inspect import isawaitable
from queue import SimpleQueue
from threading import Thread, Timer
from typing import Any

from loguru import logger

from rg_env.config import PREFIX, RGDumpConfig
from rg_env.dump.schema import (
    GroupRecord,
    Message,
    Phase,
    RolloutRecord,
    answered,
    group_id,
    has_no_signal,
    outcome_of,
)
from rg_env.errors import RGEnvError, describe, one_line, refuse
from rg_env.scoring.length import LengthPenaltyConfig, ScoredGroup, group_penalty
from rg_env.scoring.parse import parse_response
from rg_env.scoring.types import AnswerScore, Status, Verdict
from rg_env.tasks import Item
from rg_env.user_code import in_user_code, load_object

CustomRewards = Sequence[float] | str
"""What a user's function returned for the rollouts of a group that are trained on, or one line saying how it failed."""

_SLOW = 60.0
"""Seconds after which a call of a user's function is said to be slow."""
_NO_PENALTY = LengthPenaltyConfig(kind="none")


# -------------------------------------------------------------------------------------------------------- one rollout
class Stopwatch:
    """Measures how long a response and its scoring took; started when the response is requested.

    `ended` is never before `began`, also if the machine's clock is set back meanwhile.

    Attributes:
        began, ended: in seconds since 1970-01-01 UTC; `ended` is the end of the last phase that was measured.
        generation, scoring: seconds of the two phases; 0 until they have ended.
    """

    __slots__ = ("_last", "began", "ended", "generation", "scoring")

    def __init__(self) -> None:
        self.began = self.ended = time.time()
        self.generation = self.scoring = 0.0
        self._last = time.monotonic()

    def end_generation(self) -> None:
        """The response is there; scoring begins."""
        self.generation = self._lap()

    def end_scoring(self) -> None:
        """The verdict is there."""
        self.scoring = self._lap()

    def _lap(self) -> float:
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        self.ended += seconds
        return seconds


@dataclass(slots=True, eq=False, repr=False)
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
        score: base score × penalty_factor, in [0, 1]. It and `reward` and `masked` are set by the rules of the group.
        reward: what SkyRL trains on.
        masked: whether the rollout is kept out of the loss, because there is no response, or its scorer died, cannot
            score the item, or got no CPU time, or the user's function failed.
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
        """How long the response took, without its scoring; None if nobody measured it."""
        return self.stopwatch.generation or None if self.stopwatch is not None else None

    @property
    def responded(self) -> bool:
        """Whether there is a response."""
        return self.verdict.scored.status is not Status.NO_RESPONSE

    @property
    def stopped(self) -> bool:
        """Whether the model ended the response itself."""
        return self.stop_reason in (None, "stop")


# --------------------------------------------------------------------------------------------- the rules of a group
def compose_reward(score: float, well_formed: bool, config: RGDumpConfig, addition: float = 0.0) -> float:
    """The reward of one rollout: the score plus format bonus and additive penalty."""
    return score + (config.format_bonus if well_formed else 0.0) + addition


def is_masked(rollout: Rollout, config: RGDumpConfig) -> bool:
    """Whether a rollout is kept out of the loss, because of the machine and never because of what its text does.

    There is no response, its scorer got no CPU time, or with `on_scorer_failure=mask` its scorer died or cannot score
    the item. An answer that used up its CPU seconds, or on which the scorer raised, is wrong.
    """
    scored = rollout.verdict.scored
    excused = config.on_scorer_failure == "mask" and scored.excused
    return not scored.status.is_counted or scored.starved or excused


def set_rewards(
    group: Sequence[Rollout],
    config: RGDumpConfig,
    *,
    max_length: int,
    penalize: bool,
    zero_on_non_stop: bool = False,
    custom: CustomRewards | None = None,
) -> None:
    """Apply the group's rules: set score, penalty factor and reward of every rollout.

    A masked rollout gets the mean reward of the others, so that dynamic sampling judges the group as if it were not
    there.

    Args:
        group: the rollouts of one prompt.
        config: the settings.
        max_length: length in tokens at which the length penalty is complete, unless the settings have one.
        penalize: False outside the train phase: no length penalty.
        zero_on_non_stop: SkyRL's `generator.zero_reward_on_non_stop`, applied to the reward as SkyRL does.
        custom: from `RewardFunction.rate` of this group; replaces the base scores in the rewards. Outcome and score do
            not depend on it.
    """
    sound = [rollout for rollout in group if not is_masked(rollout, config)]
    scores = [rollout.verdict.scored.score for rollout in sound]
    lengths = [rollout.response_tokens or 0 for rollout in sound]
    solved = [score >= config.solved_at for score in scores]
    penalty_config = config.length_penalty if penalize else _NO_PENALTY
    penalty = group_penalty(penalty_config, ScoredGroup(scores, lengths, solved), max_length)
    error = custom if isinstance(custom, str) else ""
    values: Sequence[float | None] = [None] * len(sound) if custom is None or isinstance(custom, str) else custom
    for rollout, factor, addition, value in zip(sound, penalty.factors, penalty.additions, values, strict=True):
        base = rollout.verdict.scored.score
        rollout.score, rollout.penalty_factor = base * factor, factor
        rollout.custom_reward, rollout.reward_error, rollout.masked = value, error, bool(error)
        well_formed = rollout.verdict.parsed.violation is None
        rollout.reward = compose_reward((base if value is None else value) * factor, well_formed, config, addition)
        if error or (zero_on_non_stop and not rollout.stopped):
            rollout.reward = 0.0
    rewards = [rollout.reward for rollout in sound]
    # The mean of equal rewards is exactly that reward, so that the group still has no signal.
    mean = sum(rewards) / len(rewards) if len(set(rewards)) > 1 else max(rewards, default=0.0)
    for rollout in group:
        if is_masked(rollout, config):
            rollout.score, rollout.reward, rollout.masked = 0.0, mean, True


# --------------------------------------------------------------------------------------------------------- the record
@dataclass(frozen=True, slots=True)
class Origin:
    """Where a group comes from; see `GroupFacts` and, for `policy_version`, `RolloutFacts`."""

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
    """The record of a group.

    Args:
        question: the item, or the prompt of another environment.
        uid: the prompt's id; unique within a call.
        group: the rollouts, after the rules of the group.
        solved_at: a rollout with at least this base score is correct.
    """
    rollouts = [_rollout_record(rollout, origin.policy_version) for rollout in group]
    counted = answered(rollouts)
    facts: dict[str, Any]
    if isinstance(question, Prompt):
        facts = {"environment": question.environment, "solved_at": solved_at}
    else:
        facts = {
            "task_config": question.config_json,
            "level": question.level or "",
            "complexity": question.complexity,
            "baseline": max(rollout.verdict.scored.baseline for rollout in group),
            "entry": question.entry_json,
        }
    if watches := [rollout.stopwatch for rollout in group if rollout.stopwatch]:
        facts["started_at"] = round(min(watch.began for watch in watches), 3)
        facts["ended_at"] = round(max(watch.ended for watch in watches), 3)
        facts["generation_seconds"] = round(sum(watch.generation for watch in watches), 6)
        facts["scoring_seconds"] = round(sum(watch.scoring for watch in watches), 6)
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
        outcome=outcome_of([rollout.base_score for rollout in counted], solved_at),
        no_signal=has_no_signal([rollout.reward for rollout in counted]),
        rollouts=rollouts,
        **facts,
    )


def _rollout_record(rollout: Rollout, policy_version: str) -> RolloutRecord:
    parsed, scored = rollout.verdict.parsed, rollout.verdict.scored
    failed = rollout.reward_error and scored.status is Status.OK
    return RolloutRecord(
        conversation=[{key: _storable(text) for key, text in message.items()} for message in rollout.conversation],
        score=float(rollout.score),
        reward=float(rollout.reward),
        base_score=float(scored.score),
        raw_score=scored.raw,
        tagged_score=scored.tagged,
        violation=parsed.violation or "",
        status=Status.REWARD_ERROR if failed else scored.status,
        detail=_storable(rollout.reward_error if failed else scored.detail),
        answer=_storable(parsed.answer or ""),
        response_tokens=rollout.response_tokens,
        stop_reason=rollout.stop_reason or "",
        truncated=rollout.stop_reason == "length",
        penalty_factor=rollout.penalty_factor,
        repetition=rollout.repetition,
        policy_version=policy_version,
        normalized=scored.normalized,
        custom_reward=rollout.custom_reward,
        turns=None if rollout.turns is None else len(rollout.turns),
        each_turn="" if rollout.turns is None else json.dumps(rollout.turns),
    )


def _storable(text: str) -> str:
    """The text with `?` for what UTF-8 cannot hold: lone surrogates."""
    return text.encode(errors="replace").decode()


# ------------------------------------------------------------------------------------------- a user's reward function
class RewardFunction:
    """A user's reward function, whose calls run one after another in one thread of their own.

    Args:
        function: maps the rollouts of a group, without masked ones, to one finite number each. It may be a coroutine
            function; all its calls are awaited in the same event loop.
        explain: the one line about an exception that it raised.
    """

    def __init__(
        self,
        function: Callable[[Sequence[Rollout]], Any],
        explain: Callable[[BaseException], str] = describe,
    ) -> None:
        self._function, self._explain = function, explain
        self._calls: SimpleQueue[tuple[Future[CustomRewards], Sequence[Rollout]]] = SimpleQueue()
        self._is_slow = False
        Thread(target=self._serve, name="reward function", daemon=True).start()

    def rate(self, group: Sequence[Rollout], config: RGDumpConfig) -> CustomRewards:
        """Call the function for a group. Never raises."""
        return self._submit(group, config).result()

    async def rate_async(self, group: Sequence[Rollout], config: RGDumpConfig) -> CustomRewards:
        """`rate`, for event loops."""
        return await asyncio.wrap_future(self._submit(group, config))

    def _submit(self, group: Sequence[Rollout], config: RGDumpConfig) -> Future[CustomRewards]:
        future: Future[CustomRewards] = Future()
        if sound := [rollout for rollout in group if not is_masked(rollout, config)]:
            self._calls.put((future, sound))
        else:
            future.set_result([])
        return future

    def _serve(self) -> None:
        with asyncio.Runner() as runner:
            while True:
                future, rollouts = self._calls.get()
                if future.set_running_or_notify_cancel():
                    future.set_result(self._call(rollouts, runner))

    def _call(self, rollouts: Sequence[Rollout], runner: asyncio.Runner) -> CustomRewards:
        timer = Timer(_SLOW, self._say_slow)
        timer.start()
        try:
            returned = self._function(rollouts)
            if isawaitable(returned):
                returned = runner.run(_wait_for(returned))
            values = [float(value) for value in returned]
        except BaseException as error:  # user code can raise anything
            return self._explain(error)
        finally:
            timer.cancel()
        if len(values) != len(rollouts):
            return f"the reward function returned {len(values)} values for {len(rollouts)} rollouts"
        return values if all(map(math.isfinite, values)) else "the reward function returned a value that is not finite"

    def _say_slow(self) -> None:
        if not self._is_slow:
            logger.warning("a call of the reward function takes over {:g} s; its groups wait for it", _SLOW)
        self._is_slow = True


async def _wait_for(value: Awaitable[Any]) -> Any:
    return await value


def load_reward(config: RGDumpConfig, folder: str | None = None) -> RewardFunction | None:
    """The function that `reward` names; None if it is not set.

    Args:
        folder: the run's log folder, for tracebacks; None: they are written nowhere.

    Raises:
        UserCodeError, ConfigError: there is none.
    """
    if config.reward is None:
        return None
    function = load_object("reward", config.reward)
    if not callable(function):
        refuse(f"{PREFIX}.reward", config.reward, "is not a function")

    def explain(error: BaseException) -> str:
        user_error = in_user_code(error, config, folder)
        return one_line(user_error) if user_error else describe(error)

    return RewardFunction(function, explain)


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
    entry = {"question": "2 + 2 =", "answer": "4", "metadata": {"source_dataset": "chain_sum", "source_index": 0}}
    item = Item("chain_sum-train-0-0", "chain_sum", "train", 0, 0, entry, json.dumps(entry), None, "")
    group = []
    for number, (text, score) in enumerate(responses.items()):
        verdict = Verdict(parse_response(text), AnswerScore(score, score, score or 0.0, Status.OK))
        conversation = [{"role": "user", "content": "2 + 2 ="}, {"role": "assistant", "content": text}]
        tokens = len(text.split())
        group.append(Rollout(verdict, tokens, "stop", conversation, number, Stopwatch(), item, text))
    values = function.rate(group, RGDumpConfig())
    if isinstance(values, str):
        raise RGEnvError(values)
