"""The line that the log has for each step."""

import pytest

from rg_env.scoring.types import Violation
from rg_env.skyrl.steps import StepSummary
from tests.dump.records import group, unanswered, violating


def summary(*groups):
    made = StepSummary(solved_at=0.99)
    made.add(groups)
    return made


@pytest.mark.parametrize(
    ("groups", "line"),
    [
        (
            [group(0, [1.0, 1.0]), group(1, [1.0, 0.0]), group(2, [0.0, 0.0], task="gcd")],
            "groups: 1 all correct, 1 mixed, 1 all wrong | mean score 0.500 | tasks: chain_sum 2, gcd 1",
        ),
        (
            [group(0, [0.01] * 8), group(1, [0.01, 0.02])],
            "groups: 0 all correct, 2 mixed (1 all wrong with equal partial credit), 0 all wrong | mean score 0.011 | "
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
    assert summary(*groups).take().line() == line


def test_a_taken_summary_starts_again():
    made = summary(group(0), group(1, task="gcd"))
    assert made.take().groups == 2
    assert not made.take().groups
    made.add([group(2)])
    assert made.take().line().endswith("tasks: chain_sum 1")
