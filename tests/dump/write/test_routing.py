"""Who is kept. The reference environment's biases, each as a test: see docs on Atropos' `reasoning_gym_environment`."""

from __future__ import annotations

import pytest

from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import FileKind, NotKept, Outcome, has_no_signal, outcome_of, route
from tests.dump.records import group, rollout

SWITCHES = ("dump_rollouts", "dump_failed_rollouts", "dump_other_rollouts", "dump_eval_rollouts")
ALL_ON, ALL_OFF = RGDumpConfig(), RGDumpConfig(**dict.fromkeys(SWITCHES, False))


@pytest.mark.parametrize(
    ("base_scores", "on", "off"),
    [
        ([0.71, 0.0], FileKind.ROLLOUTS, NotKept.ROLLOUTS_OFF),
        ([1.0, 1.0], FileKind.ROLLOUTS, NotKept.ROLLOUTS_OFF),  # all-correct groups are kept
        ([0.0, 0.0], FileKind.FAILED, NotKept.FAILED_OFF),
        ([0.7, 0.0], FileKind.OTHER, NotKept.OTHER_OFF),  # the threshold is strict
        ([0.01, 0.0], FileKind.OTHER, NotKept.OTHER_OFF),
        ([-1.0, -1.0], FileKind.FAILED, NotKept.FAILED_OFF),  # what DAPO's rule gives to wrong answers
        ([-1.0, 0.0], FileKind.FAILED, NotKept.FAILED_OFF),
        ([-1.0, 0.01], FileKind.OTHER, NotKept.OTHER_OFF),
        ([-1.0, 1.0], FileKind.ROLLOUTS, NotKept.ROLLOUTS_OFF),
    ],
)
def test_train_groups_by_base_score(base_scores, on, off):
    record = group(rollouts=base_scores)
    assert route(record, ALL_ON) == (on, None)
    assert route(record, ALL_OFF) == (None, off)


def test_evaluation_never_goes_where_training_data_is():
    for scores in ([1.0], [0.0], [0.5]):
        assert route(group(rollouts=scores, phase="eval"), ALL_ON) == (FileKind.EVAL, None)
        assert route(group(rollouts=scores, phase="eval"), ALL_OFF) == (None, NotKept.EVAL_OFF)


def test_an_all_correct_group_at_the_length_limit_is_a_success_though_its_scores_are_0():
    punished = [rollout(1.0, k, score=0.0, reward=0.0, penalty_factor=0.0, truncated=True) for k in range(4)]
    record = group(rollouts=punished)
    assert record.outcome is Outcome.ALL_CORRECT
    assert route(record, ALL_ON) == (FileKind.ROLLOUTS, None)


def test_a_group_without_rollouts_is_no_failure():
    assert route(group(rollouts=[]), ALL_ON) == (None, NotKept.NO_ROLLOUTS)


def test_outcomes_are_exhaustive_and_look_at_solved_at():
    assert outcome_of([0.99, 1.0]) is Outcome.ALL_CORRECT
    assert outcome_of([0.98, 1.0]) is Outcome.MIXED
    assert outcome_of([0.98, 1.0], solved_at=0.9) is Outcome.ALL_CORRECT
    assert outcome_of([0.0, 0.0], solved_at=0.0) is Outcome.ALL_CORRECT
    assert outcome_of([0.0, 0.0]) is Outcome.ALL_FAILED
    assert outcome_of([-1.0, -0.25, 0.0]) is Outcome.ALL_FAILED
    assert outcome_of([-1.0, 1.0]) is Outcome.MIXED
    assert outcome_of([]) is Outcome.MIXED


def test_no_signal_is_about_rewards():
    assert has_no_signal([-0.5, -0.5])
    assert not has_no_signal([0.0, 1e-9])
