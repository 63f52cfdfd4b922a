"""Worked solutions: well-formed, correct by Reasoning Gym's own scorer, with correct working."""

from __future__ import annotations

import pytest
import reasoning_gym

from rg_env.cpu.worked import NANO_TASKS, worked_solution
from rg_env.errors import ConfigError
from rg_env.scoring import parse_response


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("task", NANO_TASKS)
def test_solutions_of_any_item_are_well_formed_and_right(task: str, at_once: bool) -> None:
    dataset = reasoning_gym.create_dataset(task, seed=7, size=50, **NANO_TASKS[task]["config"])
    for entry in dataset:
        parsed = parse_response(worked_solution(entry, at_once=at_once))
        assert parsed.violation is None
        assert parsed.think
        assert dataset.score_answer(parsed.answer, entry) == 1.0


@pytest.mark.parametrize(
    ("metadata", "answer", "solution"),
    [
        (
            {"source_dataset": "chain_sum", "expression": "4 - 9 + 5"},
            "0",
            "<think>4 - 9 = -5, -5 + 5 = 0</think>\n<answer>0</answer>",
        ),
        (
            {"source_dataset": "leg_counting", "animals": {"crab": 2, "ant": 1}},
            "26",
            "<think>2 * 10 = 20, 1 * 6 = 6, 20 + 6 = 26</think>\n<answer>26</answer>",
        ),
        (
            {"source_dataset": "spell_backward", "word": "neon"},
            "noen",
            "<think>1n2e3o4n</think>\n<answer>noen</answer>",
        ),
    ],
    ids=lambda value: value["source_dataset"] if isinstance(value, dict) else "",
)
def test_the_working(metadata: dict[str, object], answer: str, solution: str) -> None:
    assert worked_solution({"question": "", "answer": answer, "metadata": metadata}) == solution


def test_a_task_without_one_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no worked solutions for task 'acre'.*chain_sum"):
        worked_solution({"question": "", "answer": "", "metadata": {"source_dataset": "acre"}})
