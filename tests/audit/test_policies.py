"""Cheap policies read the question only, and the audit finds those that earn more than the class prior."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from rg_env.audit import Audit, TaskAudit, markdown
from rg_env.audit.free_reward import FREE_MARGIN, FreeReward, free_reward
from rg_env.audit.policies import Family, policies_for
from rg_env.audit.sides import Ending, Outcome
from rg_env.scoring import Measure
from rg_env.tasks import OFTEN_FREE, TaskMix
from rg_env.tasks.upstream.dataset import UpstreamDataset

TASKS = ("boxnet", "graph_color", "jugs", "knights_knaves", "modulo_grid", "rotate_matrix", "rush_hour", "sudoku")


class Paying:
    """A scorer that pays by a rule."""

    contains = True
    deadline = 1.0

    def __init__(self, pay: Callable[[Mapping[str, Any], str], float]) -> None:
        self._pay = pay

    def start(self, task: str) -> None:
        pass

    def ask(self, entry: Mapping[str, Any], answer: str) -> Outcome:
        return Outcome(Ending.SCORED, self._pay(entry, answer))

    def renew(self) -> None:
        pass


def _measured(pay: Callable[[Mapping[str, Any], str], float]) -> FreeReward:
    entries = [{"question": f"What is {n}?", "answer": "Yes" if n % 2 else "No", "metadata": {}} for n in range(40)]
    return free_reward("made_up", entries, Paying(pay), Paying(pay))


def _right(entry: Mapping[str, Any], answer: str) -> float:
    return float(answer == entry["answer"])


def test_what_a_constant_gets_right_is_the_class_prior_and_not_free() -> None:
    found = _measured(_right)
    assert found.items == 32
    assert found.class_prior == 0.5
    assert found.ours is not None
    assert (found.ours.mean, found.ours.right, found.ours.family, found.excess) == (0.5, 0.5, "constant", 0.0)


@pytest.mark.parametrize(
    ("pay", "family", "free"),
    [
        (lambda entry, answer: 0.75 if answer == "0" else _right(entry, answer), "constant", 0.25),
        (lambda entry, answer: float(answer == entry["question"]), "copy", 1.0),
        (lambda entry, answer: max(0.6 * (answer == "7"), 0.9 * (answer == entry["question"][8:-1])), "copy", 0.9),
    ],
)
def test_what_a_policy_earns_beyond_it_is_free(
    pay: Callable[[Mapping[str, Any], str], float], family: str, free: float
) -> None:
    found = _measured(pay)
    assert found.ours is not None
    assert (found.ours.family, round(found.excess, 6)) == (family, free)
    assert found.excess > FREE_MARGIN
    paid = TaskAudit("gcd", True, "unaudited", 1, free=found)
    left_out = TaskAudit("aiw", False, "unaudited", 1, free=found)
    audit = Audit("2026-01-01", "0", "3", "x", 1, 1.0, 0.5, (Measure("one", True),), (paid, left_out))
    assert audit.failed == ("gcd",)
    assert f"| gcd | yes | {found.class_prior:.2f} | {found.ours.mean:.2f} {found.ours.policy}" in markdown(audit)


@pytest.mark.parametrize("task", TASKS)
def test_policies_answer_without_the_answer(task: str) -> None:
    dataset = UpstreamDataset(task, {})
    policies = policies_for(task, ["1", "2", "1"])
    assert len(policies) > 100
    assert {policy.family for policy in policies} >= {Family.CONSTANT, Family.MAJORITY, Family.COPY, Family.EDIT}
    for seed in range(2):
        entry = dataset.make(seed)
        state = {key: entry["metadata"][key] for key in ("initial_state",) if task == "boxnet"}
        answers = [policy.answer({"question": entry["question"], "metadata": state}) for policy in policies]
        assert all(answer is None or isinstance(answer, str) for answer in answers)
        assert len({answer for answer in answers if answer}) > 70


def test_tasks_with_often_free_answers_are_used_only_when_selected() -> None:
    default = {task.name for task in TaskMix.parse(None).tasks}
    assert not default & set(OFTEN_FREE)
    assert "rotate_matrix" in {task.name for task in TaskMix.parse("category:algorithmic").tasks}
    assert [task.name for task in TaskMix.parse("aiw").tasks] == ["aiw"]
