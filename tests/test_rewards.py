"""The group's rules: penalty, composition, masking, in that order and no other."""

import asyncio
import os
import random
import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rg_env.configuration.config import LengthPenaltyConfig, RGDumpConfig
from rg_env.rollouts import rewards
from rg_env.rollouts import rollout as rollouts
from rg_env.rollouts.rewards import set_rewards
from rg_env.rollouts.rollout import Rollout, Stopwatch
from rg_env.scoring.length import LENGTH_PENALTIES
from rg_env.scoring.types import AnswerScore, ParsedResponse, Status, Verdict, Violation


def rollout(base, tokens=10, *, violation=None, status=Status.OK, stopped=True):
    parsed = ParsedResponse("t", None if violation else "a", violation)
    scored = status is Status.OK and violation is None
    result = AnswerScore(base, 0.0, base, status) if scored else replace(AnswerScore.without_score(status), score=base)
    return Rollout(Verdict(parsed, result), tokens, "stop" if stopped else "length")


def rewards_of(group, config=None, **kwargs):
    set_rewards(group, config or RGDumpConfig(), **{"max_length": 100, "penalize": True, **kwargs})
    return group


def test_a_group_of_right_answers_is_penalized_for_length_in_training():
    short, middle, long = rewards_of([rollout(1.0, 50), rollout(1.0, 80), rollout(1.0, 100)])
    assert short.reward == 1.0
    assert middle.score == pytest.approx(1 - (80 - 75) / 25)
    assert long.score == long.reward == long.penalty_factor == 0.0
    assert [e.score for e in rewards_of([rollout(1.0, 100), rollout(0.0, 5)])] == [1.0, 0.0]  # not all are right
    assert [e.score for e in rewards_of([rollout(1.0, 100)] * 2, penalize=False)] == [1.0, 1.0]


def test_a_length_factor_never_raises_a_negative_reward():
    """With a reward of 1 - 0.02 * tokens, the longest response used to get more than a shorter one."""
    lengths = [10, 80, 90, 100]
    custom = [1 - 0.02 * length for length in lengths]
    group = rewards_of([rollout(1.0, length) for length in lengths], custom=custom)
    assert [each.penalty_factor for each in group] == pytest.approx([1.0, 0.8, 0.4, 0.0])
    assert [each.reward for each in group] == custom


def test_an_additive_penalty_moves_the_reward_and_not_the_score():
    config = RGDumpConfig(length_penalty=LengthPenaltyConfig(kind="dapo", buffer=20))
    short, long = rewards_of([rollout(1.0, 80), rollout(1.0, 100)], config)
    assert (short.score, short.reward, long.score, long.reward) == (1.0, 1.0, 1.0, 0.0)


def test_a_bonus_is_for_the_format_and_zero_on_non_stop_comes_last():
    group = [rollout(1.0), rollout(1.0, stopped=False), rollout(0.0, violation=Violation.NO_ANSWER)]
    stopped, cut, bad = rewards_of(group, RGDumpConfig(format_bonus=0.2), zero_on_non_stop=True)
    assert stopped.reward == pytest.approx(1.2)
    assert (cut.reward, cut.score, bad.reward) == (0.0, 1.0, 0.0)


@pytest.mark.parametrize("bonus", [0.1, 0.3, 0.7])
@pytest.mark.parametrize("size", range(2, 12))
def test_a_masked_rollout_leaves_equal_rewards_equal(size, bonus):
    """To the last bit: SkyRL's dynamic sampling drops a group whose rewards are all equal."""
    config = RGDumpConfig(format_bonus=bonus, on_scorer_failure="mask")
    rewards = rewards_of([*(rollout(0.0) for _ in range(size)), rollout(0.0, status=Status.CRASHED)], config)
    assert rewards[-1].masked
    assert {one.reward for one in rewards} == {bonus}


def test_a_failed_scorer_is_zero_or_moves_nobodys_advantage():
    failed = [rollout(0.0, status=Status.CRASHED), rollout(0.0, status=Status.REJECTED)]  # the second is its own fault
    zeros = rewards_of([rollout(1.0), *failed])
    assert [(e.masked, e.reward) for e in zeros] == [(False, 1.0), (False, 0.0), (False, 0.0)]
    config = RGDumpConfig(on_scorer_failure="mask")
    masked = rewards_of([rollout(1.0), *failed], config)
    assert [(e.masked, e.reward) for e in masked] == [(False, 1.0), (True, 0.5), (False, 0.0)]
    assert all(e.masked and e.reward == 0.0 for e in rewards_of([rollout(0.0, status=Status.ERROR)] * 3, config))


@pytest.mark.parametrize("on_scorer_failure", ["zero", "mask"])
def test_a_rollout_whose_scorer_got_no_core_is_always_masked(on_scorer_failure):
    excused, hangs = rollout(0.0), rollout(0.0, status=Status.TIMEOUT)
    scored = AnswerScore.without_score(Status.TIMEOUT, "no core was free", excused=True)
    excused.verdict = Verdict(excused.verdict.parsed, scored)
    config = RGDumpConfig(on_scorer_failure=on_scorer_failure)
    ok, hung, masked = rewards_of([rollout(1.0), hangs, excused], config)
    assert (ok.masked, hung.masked, masked.masked) == (False, False, True)  # an answer that hangs is wrong
    assert masked.reward == pytest.approx(0.5)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 200)), min_size=1, max_size=8),
    st.sampled_from(list(LENGTH_PENALTIES)),
    st.booleans(),
)
def test_scores_stay_in_range_and_are_never_raised(pairs, kind, penalize):
    config = RGDumpConfig(length_penalty=LengthPenaltyConfig(kind=kind))
    for computed in rewards_of([rollout(base, tokens) for base, tokens in pairs], config, penalize=penalize):
        assert 0.0 <= computed.score <= computed.verdict.scored.score
        assert 0.0 <= computed.penalty_factor <= 1.0


def test_phases_are_measured_also_if_the_clock_is_set_back(monkeypatch):
    now = {"time": 1_000.0, "monotonic": 50.0}
    for name in now:
        monkeypatch.setattr(rollouts.time, name, lambda name=name: now[name])
    watch = Stopwatch()
    now.update(time=900.0, monotonic=53.0)
    watch.end_generation()
    now.update(monotonic=54.5)
    watch.end_scoring()
    assert (watch.began, watch.ended, watch.generation, watch.scoring) == (1_000.0, 1_004.5, 3.0, 1.5)


class UnprintableError(Exception):
    def __str__(self):
        return self.no_such_attribute


@pytest.mark.timeout(30)
def test_an_exception_that_cannot_be_printed_and_a_moment_without_threads_stop_nothing(monkeypatch):
    def fail(rollouts):
        if rollouts[0].verdict.scored.score == 0.0:
            raise UnprintableError
        return [1.0 for _ in rollouts]

    function = rewards.RewardFunction(fail)
    assert function.rate([rollout(0.0)], RGDumpConfig()) == "UnprintableError"
    with monkeypatch.context() as patch:
        patch.setattr("rg_env.rollouts.rewards.Timer.start", refuse_to_start)
        assert function.rate([rollout(1.0)], RGDumpConfig()) == "RuntimeError: can't start new thread"
    assert function.rate([rollout(1.0)], RGDumpConfig()) == [1.0]


def refuse_to_start(_timer):
    raise RuntimeError("can't start new thread")


class InterruptError(Exception):
    pass


def interrupt(_signum, _frame):
    raise InterruptError


def test_exceptions_of_signal_handlers_at_any_moment_stop_no_reward_function():
    """Many time limits in the main thread raise so."""
    function = rewards.RewardFunction(lambda group: [1.0] * len(group))
    chance, group, config = random.Random(0), [rollout(1.0)], RGDumpConfig()
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(1_000):
            start = time.monotonic()
            with suppress(InterruptError):
                # The second alarm, a minute later, ends a call that waits for ever.
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, 4e-4), 60.0)
                assert function.rate(group, config) == [1.0]
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert time.monotonic() - start < 60.0, "a call waited for ever"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert function.rate(group, config) == [1.0]


def test_a_reward_function_answers_in_a_forked_child():
    """Which has no thread of its parent's. Some trainers fork after they have loaded it."""
    function = rewards.RewardFunction(lambda group: [2.0] * len(group))
    assert function.rate([rollout(1.0)], RGDumpConfig()) == [2.0]
    pid = os.fork()
    if not pid:
        signal.alarm(60)  # ends a call that waits for ever
        os._exit(function.rate([rollout(1.0)], RGDumpConfig()) != [2.0])
    assert os.waitpid(pid, 0)[1] == 0
    assert function.rate([rollout(1.0)], RGDumpConfig()) == [2.0]


def test_a_call_that_was_given_up_before_its_turn_is_not_made():
    is_called, may_return, sizes = threading.Event(), threading.Event(), []

    def rate(group):
        is_called.set()
        may_return.wait()
        sizes.append(len(group))
        return [1.0 for _ in group]

    async def give_up_the_second():
        function = rewards.RewardFunction(rate)
        calls = [
            asyncio.ensure_future(function.rate_async([rollout(1.0)] * size, RGDumpConfig())) for size in (1, 2, 3)
        ]
        await asyncio.to_thread(is_called.wait)
        calls[1].cancel()
        await asyncio.gather(calls[1], return_exceptions=True)
        may_return.set()
        assert await calls[2] == [1.0] * 3

    asyncio.run(give_up_the_second())
    assert sizes == [1, 3]


def test_rewards_returned_as_a_text_are_refused():
    function = rewards.RewardFunction(lambda _: "110")
    assert "returned a str, '110', not a list of numbers" in function.rate([rollout(1.0)] * 3, RGDumpConfig())
