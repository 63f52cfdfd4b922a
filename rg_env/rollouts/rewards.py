"""The rules that judge the rollouts of a group, and the user's function that may replace their base scores.

The order is fixed: base score → penalty factor → score → reward. A penalty never changes a group's outcome, because
the outcome depends on base scores. Every kind of training shares this: no files, no processes, no SkyRL. A user's
function runs in the thread of its `RewardFunction`.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable
from queue import SimpleQueue
from threading import Thread, Timer
from typing import Any

from loguru import logger

from rg_env.base.errors import RGEnvError, describe, one_line, refuse
from rg_env.configuration.config import PREFIX, LengthPenaltyConfig, RGDumpConfig
from rg_env.rollouts.rollout import Rollout as Rollout  # the type that a user's function gets
from rg_env.rollouts.rollout import Stopwatch
from rg_env.runner.handover import Deliver, wait_for, wait_for_async
from rg_env.scoring.length import ScoredGroup, group_penalty
from rg_env.scoring.parse import parse_response
from rg_env.scoring.types import AnswerScore, Status, Verdict
from rg_env.tasks import Item

CustomRewards = Sequence[float] | str
"""Values of a user's function for the rollouts of a group that are trained on, or one line saying how it failed."""

_SLOW = 60.0
"""Seconds after which a call of a user's function is said to be slow."""
_TEXTS = (str, bytes, bytearray)
_NO_PENALTY = LengthPenaltyConfig(kind="none")


# --------------------------------------------------------------------------------------------- the rules of a group
def compose_reward(score: float, well_formed: bool, config: RGDumpConfig, addition: float = 0.0) -> float:
    """Return the reward of one rollout: the score plus format bonus and additive penalty."""
    return score + (config.format_bonus if well_formed else 0.0) + addition


def is_masked(rollout: Rollout, config: RGDumpConfig) -> bool:
    """Return whether a rollout is kept out of the loss, because of the machine and never because of what its text does.

    There is no response, its scorer got no CPU time, or with `on_scorer_failure=mask` its scorer died or cannot score
    the item. An answer that used up its CPU seconds, or on which the scorer raised, is wrong.
    """
    # The order matters: a timeout without a core is masked whatever `on_scorer_failure` says.
    scored = rollout.verdict.scored
    if not scored.status.is_counted:
        return True
    if scored.status is Status.TIMEOUT or config.on_scorer_failure == "mask":
        return scored.excused
    return False


def mean_reward(rewards: Sequence[float]) -> float:
    """Return the reward of a masked rollout, given those of the others in its group.

    The mean of equal rewards is exactly that reward, so that the group still has no signal; 0 if there is no other.
    """
    if len(set(rewards)) > 1:
        return sum(rewards) / len(rewards)
    return max(rewards, default=0.0)


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
    # The rule of length sees the rollouts that are trained on only: a request that failed has no length.
    unmasked = [rollout for rollout in group if not is_masked(rollout, config)]
    scores = [rollout.verdict.scored.score for rollout in unmasked]
    lengths = [rollout.response_tokens or 0 for rollout in unmasked]
    solved = [score >= config.solved_at for score in scores]
    penalty_config = config.length_penalty if penalize else _NO_PENALTY
    penalty = group_penalty(penalty_config, ScoredGroup(scores, lengths, solved), max_length)
    error = ""
    values: Sequence[float | None] = [None] * len(unmasked)
    if isinstance(custom, str):
        error = custom
    elif custom is not None:
        values = custom
    for rollout, factor, addition, value in zip(unmasked, penalty.factors, penalty.additions, values, strict=True):
        base = rollout.verdict.scored.score
        rollout.score, rollout.penalty_factor = base * factor, factor
        rollout.custom_reward, rollout.reward_error, rollout.masked = value, error, bool(error)
        well_formed = rollout.verdict.parsed.violation is None
        worth = base if value is None else value
        # A factor would raise a negative worth, and so reward length.
        shortened = min(worth, worth * factor)
        rollout.reward = compose_reward(shortened, well_formed, config, addition)
        if error or (zero_on_non_stop and not rollout.stopped):
            rollout.reward = 0.0
    mean = mean_reward([rollout.reward for rollout in unmasked])
    for rollout in group:
        if is_masked(rollout, config):
            rollout.score, rollout.reward, rollout.masked = 0.0, mean, True


# ------------------------------------------------------------------------------------------- a user's reward function
@dataclass
class _Call:
    """A call of a user's function on its way through the function's thread."""

    rollouts: Sequence[Rollout]
    deliver: Deliver[CustomRewards]
    is_awaited: bool = True

    def give_up(self) -> None:
        self.is_awaited = False


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
        # By process: a forked child has no thread of its parent's.
        self._calls: dict[int, SimpleQueue[_Call]] = {}
        self._is_slow = False
        self._start()

    def rate(self, group: Sequence[Rollout], config: RGDumpConfig) -> CustomRewards:
        """Call the function for a group. Never raises."""
        values: CustomRewards = wait_for(partial(self._begin, group, config))
        return values

    async def rate_async(self, group: Sequence[Rollout], config: RGDumpConfig) -> CustomRewards:
        """`rate`, for event loops."""
        values: CustomRewards = await wait_for_async(partial(self._begin, group, config))
        return values

    def _begin(
        self, group: Sequence[Rollout], config: RGDumpConfig, deliver: Deliver[CustomRewards]
    ) -> Callable[[], None]:
        """Have the function called for a group. Returns what gives a call up that has not begun."""
        unmasked = [rollout for rollout in group if not is_masked(rollout, config)]
        call = _Call(unmasked, deliver)
        # A user's function is not called for a group of which nothing is trained on.
        if unmasked:
            self._start().put(call)
        else:
            deliver([])
        return call.give_up

    def _start(self) -> SimpleQueue[_Call]:
        """Return the queue of this process's thread, which is started if there is none."""
        pid = os.getpid()
        if pid not in self._calls:
            calls: SimpleQueue[_Call] = SimpleQueue()
            Thread(target=self._serve, args=(calls,), name="reward function", daemon=True).start()
            # If another thread was faster, that one's queue is used, and this one stays empty.
            self._calls.setdefault(pid, calls)
        return self._calls[pid]

    def _serve(self, calls: SimpleQueue[_Call]) -> None:
        # One event loop for all calls: a client that the function keeps belongs to the loop in which it was made.
        with asyncio.Runner() as runner:
            while True:
                call = calls.get()
                if call.is_awaited:
                    call.deliver(self._answer(call.rollouts, runner))

    def _answer(self, rollouts: Sequence[Rollout], runner: asyncio.Runner) -> CustomRewards:
        """Never raises: an exception would end the thread, and training would wait for ever."""
        try:
            return self._call(rollouts, runner)
        except BaseException as error:  # no thread for the timer, or what explains the error failed itself
            return describe(error)

    def _call(self, rollouts: Sequence[Rollout], runner: asyncio.Runner) -> CustomRewards:
        # Only said, never ended: there is no way to stop a thread of Python from outside.
        timer = Timer(_SLOW, self._say_slow)
        timer.start()
        try:
            returned = self._function(rollouts)
            if isawaitable(returned):
                returned = runner.run(_wait_for(returned))
            if returned is None:
                return "the reward function returned nothing, not one number for each rollout"
            # Each of these can be iterated, too: a text has characters, a mapping its keys, and a set has no order.
            if isinstance(returned, (*_TEXTS, Mapping, Set)):
                kind = type(returned).__name__
                return f"the reward function returned a {kind}, {returned!r:.40}, not a list of numbers"
            values = []
            for value in returned:
                if isinstance(value, _TEXTS):
                    return f"the reward function returned the text {value!r:.40} in place of a number"
                values.append(float(value))
        except BaseException as error:  # user code can raise anything
            return self._explain(error)
        finally:
            timer.cancel()
        if len(values) != len(rollouts):
            return f"the reward function returned {len(values)} values for {len(rollouts)} rollouts"
        if not all(map(math.isfinite, values)):
            return "the reward function returned a value that is not finite"
        return values

    def _say_slow(self) -> None:
        if not self._is_slow:
            logger.warning("a call of the reward function takes over {:g} s; its groups wait for it", _SLOW)
        self._is_slow = True


async def _wait_for(value: Awaitable[Any]) -> Any:
    return await value


def load_reward(config: RGDumpConfig, folder: str | None = None) -> RewardFunction | None:
    """Return the function that `reward` names; None if it is not set.

    Args:
        folder: the run's log folder, for tracebacks; None: they are written nowhere.

    Raises:
        UserCodeError, ConfigError: there is none.
    """
    if config.reward is None:
        return None
    from rg_env.configuration.user_code import in_user_code, load_object

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
    # A mistake in the function would otherwise show at the first step, after the models have been loaded.
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
