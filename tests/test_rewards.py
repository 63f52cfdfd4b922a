"""The group's rules: penalty, composition, masking, in that order and no other."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rg_env import rewards
from rg_env.config import RGDumpConfig
from rg_env.rewards import Rollout, Stopwatch, set_rewards
from rg_env.scoring.length import LengthPenaltyConfig
from rg_env.scoring.types import AnswerScore, ParsedResponse, Status, Verdict, Violation


def rollout(base, tokens=10, *, violation=None, status=Status.OK, stopped=True):
    parsed = ParsedResponse("t", None if violation else "a", violation)
    scored = status is Status.OK and violation is None
    result = AnswerScore(base if scored else None, 0.0 if scored else None, base, status)
    return Rollout(Verdict(parsed, result), tokens, "stop" if stopped else "length")


def rewards_of(group, config=None, **kwargs):
    set_rewards(group, config or RGDumpConfig(), **{"max_length": 100, "penalize": True, **kwargs})
    return group


def test_a_group_of_right_answers_is_penalized_for_length():
    short, middle, long = rewards_of([rollout(1.0, 50), rollout(1.0, 80), rollout(1.0, 100)])
    assert short.reward == 1.0
    assert middle.score == pytest.approx(1 - (80 - 75) / 25)
    assert long.score == long.reward == 0.0
    assert long.penalty_factor == 0.0


def test_one_wrong_answer_in_the_group_switches_the_penalty_off():
    assert [e.score for e in rewards_of([rollout(1.0, 100), rollout(0.0, 5)])] == [1.0, 0.0]


def test_no_penalty_outside_the_train_phase():
    assert [e.score for e in rewards_of([rollout(1.0, 100)] * 2, penalize=False)] == [1.0, 1.0]


def test_an_additive_penalty_moves_the_reward_and_not_the_score():
    config = RGDumpConfig(length_penalty=LengthPenaltyConfig(kind="dapo", buffer=20))
    [short, long] = rewards_of([rollout(1.0, 80), rollout(1.0, 100)], config)
    assert (short.score, short.reward) == (1.0, 1.0)
    assert (long.score, long.reward) == (1.0, 0.0)


def test_zero_on_non_stop_is_honored_last():
    config = RGDumpConfig(format_bonus=0.2)
    [stopped, cut] = rewards_of([rollout(1.0), rollout(1.0, stopped=False)], config, zero_on_non_stop=True)
    assert stopped.reward == pytest.approx(1.2)
    assert cut.reward == 0.0
    assert cut.score == 1.0


@pytest.mark.parametrize("bonus", [0.1, 0.3, 0.7])
@pytest.mark.parametrize("size", range(2, 12))
def test_a_masked_rollout_leaves_equal_rewards_equal(size, bonus):
    """To the last bit: SkyRL's dynamic sampling drops a group whose rewards are all equal."""
    config = RGDumpConfig(format_bonus=bonus, on_scorer_failure="mask")
    rewards = rewards_of([*(rollout(0.0) for _ in range(size)), rollout(0.0, status=Status.CRASHED)], config)
    assert rewards[-1].masked
    assert {one.reward for one in rewards} == {bonus}


def test_a_failed_scorer_is_zero_by_default_and_says_so():
    [ok, failed] = rewards_of([rollout(1.0), rollout(0.0, status=Status.TIMEOUT)])
    assert (ok.masked, failed.masked) == (False, False)
    assert failed.reward == 0.0


def test_a_masked_rollout_moves_nobodys_advantage():
    config = RGDumpConfig(on_scorer_failure="mask")
    group = [rollout(1.0), rollout(0.0), rollout(0.0, status=Status.CRASHED)]
    rewards = rewards_of(group, config)
    assert [e.masked for e in rewards] == [False, False, True]
    assert rewards[2].reward == pytest.approx(0.5)
    assert sum(e.reward for e in rewards) / 3 == pytest.approx(0.5)


@pytest.mark.parametrize("on_scorer_failure", ["zero", "mask"])
def test_a_rollout_whose_scorer_got_no_core_is_always_masked(on_scorer_failure):
    starved = rollout(0.0, status=Status.TIMEOUT)
    starved = dataclasses.replace(
        starved,
        verdict=dataclasses.replace(
            starved.verdict, scored=AnswerScore.unscored(Status.TIMEOUT, "no core was free", starved=True)
        ),
    )
    [ok, hung, masked] = rewards_of(
        [rollout(1.0), rollout(0.0, status=Status.TIMEOUT), starved], RGDumpConfig(on_scorer_failure=on_scorer_failure)
    )
    assert (ok.masked, hung.masked, masked.masked) == (False, False, True)  # an answer that hangs is wrong
    assert masked.reward == pytest.approx(0.5)


def test_a_rejected_answer_is_the_answers_fault_and_is_never_masked():
    config = RGDumpConfig(on_scorer_failure="mask")
    [rejected] = rewards_of([rollout(0.0, status=Status.REJECTED)], config)
    assert not rejected.masked


def test_a_group_in_which_every_scorer_failed_gets_zero():
    config = RGDumpConfig(on_scorer_failure="mask")
    rewards = rewards_of([rollout(0.0, status=Status.ERROR)] * 3, config)
    assert all(e.masked and e.reward == 0.0 for e in rewards)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 200)), min_size=1, max_size=8),
    st.sampled_from(["atropos", "dapo", "kimi", "none"]),
    st.booleans(),
)
def test_scores_stay_in_range_and_are_never_raised(pairs, kind, penalize):
    config = dataclasses.replace(RGDumpConfig(), length_penalty=LengthPenaltyConfig(kind=kind))
    group = [rollout(base, tokens) for base, tokens in pairs]
    for one, computed in zip(group, rewards_of(group, config, penalize=penalize), strict=True):
        assert 0.0 <= computed.score <= one.verdict.scored.score
        assert 0.0 <= computed.penalty_factor <= 1.0


def test_a_violation_gets_no_bonus():
    config = RGDumpConfig(format_bonus=0.5)
    [bad] = rewards_of([rollout(0.0, violation=Violation.NO_ANSWER)], config)
    assert bad.reward == 0.0


def test_phases_are_measured_also_if_the_clock_is_set_back(monkeypatch):
    now = {"time": 1_000.0, "monotonic": 50.0}
    for name in now:
        monkeypatch.setattr(rewards.time, name, lambda name=name: now[name])
    watch = Stopwatch()
    now.update(time=900.0, monotonic=53.0)
    watch.responded()
    now.update(monotonic=54.5)
    watch.scored()
    assert (watch.began, watch.ended, watch.generation, watch.scoring) == (1_000.0, 1_004.5, 3.0, 1.5)
