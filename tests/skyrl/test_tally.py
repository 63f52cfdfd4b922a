"""The counts of a step. `test_figures` has those of whole runs."""

import pytest

from rg_env.configuration.config import RGDumpConfig
from rg_env.scoring.types import Status, Violation
from rg_env.skyrl.tally import Tally, why_every_reward_call_failed
from tests.dump.records import group, rollout, unanswered, violating


@pytest.mark.parametrize(
    ("groups", "line"),
    [
        (
            [group(0, [1.0, 1.0]), group(1, [1.0, 0.0]), group(2, [0.0, 0.0], task="gcd")],
            "groups: 1 all correct, 1 mixed, 1 all wrong | mean score 0.500 | tasks: chain_sum 2, gcd 1",
        ),
        (
            [group(0, [0.01] * 8), group(1, [0.01, 0.02])],
            "groups: 0 all correct, 2 mixed (1 unsolved with equal partial credit), 0 all wrong | mean score 0.011 | "
            "tasks: chain_sum 2",
        ),
        (
            [group(0, [violating(0), violating(1), violating(2, Violation.NO_THINK), 0.0])],
            "groups: 0 all correct, 0 mixed, 1 all wrong | mean score 0.000 | violations: no_answer 2, no_think 1 | "
            "tasks: chain_sum 1",
        ),
        (
            [group(0, [unanswered()])],
            "groups: 0 all correct, 1 mixed, 0 all wrong | mean score none | tasks: chain_sum 1",
        ),
        ([], ""),
    ],
)
def test_a_step_in_one_line(groups, line):
    assert Tally(RGDumpConfig(), groups).groups_line() == line


def test_a_group_with_its_own_threshold_is_solved_by_that():
    groups = [group(0, [0.6, 0.2]), group(1, [0.6, 1.0], environment="gsm8k", solved_at=0.99)]
    assert Tally(RGDumpConfig(solved_at=0.5), groups).means["solved"] == 0.5


def failed(detail):
    return rollout(0.0, status=Status.REWARD_ERROR, detail=detail)


def rated(value, **facts):
    return rollout(0.0, custom_reward=value, **facts)


@pytest.mark.parametrize(
    ("groups", "error"),
    [
        ([group(0, [failed("b"), failed("b")]), group(1, [failed("a"), unanswered()])], "b"),
        ([group(0, [failed("b")]), group(1, [rated(0.5)])], ""),
        ([group(0, [failed("b")]), group(1, [rated(0.5, status=Status.TIMEOUT)])], ""),
        ([group(0, [failed("b")]), group(1, [rollout(0.0, status=Status.TIMEOUT)])], "b"),
        ([group(0, [failed("b"), unanswered()]), group(1, [unanswered()]), group(2, [unanswered()])], ""),
        ([group(0, [unanswered()])], ""),
        ([], ""),
    ],
)
def test_only_a_batch_of_failures_alone_ends_a_run(groups, error):
    assert why_every_reward_call_failed(groups) == error
