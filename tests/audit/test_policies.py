"""Cheap policies read the question only, and the audit finds those that score more than the class prior."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from rg_env.audit import Audit, TaskAudit, render
from rg_env.audit.policies import Family, policies_for
from rg_env.audit.run import FREE_MARGIN, PolicyScores, _best_policy
from rg_env.scoring import AnswerScore, Status
from rg_env.scoring.baselines import CHEAP
from rg_env.tasks import OFTEN_FREE, TaskMix
from rg_env.tasks.upstream.dataset import UpstreamDataset

TASKS = ("graph_color", "jugs", "knights_knaves", "modulo_grid", "rotate_matrix", "sokoban", "sudoku")
Rule = Callable[[Mapping[str, Any], str], float]


class ByRule:
    """A scorer that follows a rule."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    def score(self, entry: Mapping[str, Any], answer: str) -> AnswerScore:
        score = self._rule(entry, answer)
        return AnswerScore(score, 0.0, score, Status.OK)


def measured(rule: Rule) -> TaskAudit:
    entries: list[Mapping[str, Any]] = [
        {"question": f"What is {n}?", "answer": "Yes" if n % 2 else "No", "metadata": {}} for n in range(40)
    ]
    return TaskAudit("gcd", True, "unaudited", (), *_best_policy("made_up", entries, ByRule(rule)))  # type: ignore[arg-type]


def right(entry: Mapping[str, Any], answer: str) -> float:
    return float(answer == entry["answer"])


def test_what_a_constant_gets_right_is_the_class_prior_and_not_free() -> None:
    found = measured(right)
    assert (found.prior, found.excess, found.has_hole) == (0.5, 0.0, False)
    assert found.policy is not None
    assert (found.policy.mean, found.policy.right, found.policy.family) == (0.5, 0.5, "constant")


@pytest.mark.parametrize(
    ("rule", "family", "free"),
    [
        (lambda entry, answer: 0.75 if answer == "0" else right(entry, answer), "constant", 0.25),
        (lambda entry, answer: float(answer == entry["question"]), "copy", 1.0),
        (lambda entry, answer: max(0.6 * (answer == "7"), 0.9 * (answer == entry["question"][8:-1])), "copy", 0.9),
    ],
)
def test_what_a_policy_gets_beyond_it_is_free(rule: Rule, family: str, free: float) -> None:
    found = measured(rule)
    assert found.policy is not None
    assert (found.policy.family, round(found.excess, 6)) == (family, free)
    assert found.excess > FREE_MARGIN
    left_out = TaskAudit("aiw", False, "unaudited", policy=PolicyScores("p", "copy", 1.0, 1.0))
    audit = Audit(1, 1.0, (found, left_out))
    assert audit.failed == ("gcd",)
    assert render(audit).row_count == 2


@pytest.mark.parametrize("task", TASKS)
def test_policies_answer_without_the_answer(task: str) -> None:
    dataset = UpstreamDataset(task, {})
    policies = policies_for(task, ["1", "2", "1"])
    families = {policy.family for policy in policies}
    assert families >= {Family.CONSTANT, Family.MAJORITY, Family.COPY, Family.EDIT}
    assert (Family.CHEAP in families) == (task == "sudoku")
    assert any(policy.name == "cheap answer 1" for policy in policies) == (task in CHEAP)
    for seed in range(2):
        entry = dataset.make(seed) | {"answer": None}
        answers = [policy.answer(entry) for policy in policies]
        assert all(answer is None or isinstance(answer, str) for answer in answers)
        assert len({answer for answer in answers if answer}) > 70


def test_tasks_with_often_free_answers_are_used_only_when_selected() -> None:
    default = {task.name for task in TaskMix.parse(None).tasks}
    assert not default & set(OFTEN_FREE)
    assert "rotate_matrix" in {task.name for task in TaskMix.parse("category:algorithmic").tasks}
    assert [task.name for task in TaskMix.parse("aiw").tasks] == ["aiw"]
