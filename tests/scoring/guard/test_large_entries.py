"""Entries are bounded before anything reads them, and what reads them here takes linear time.

`python -m evidence.fuzz_entries` measures it (evidence/hangs.md). A pattern that is not linear makes a test here
take minutes.
"""

from __future__ import annotations

from typing import Any

import pytest

from rg_env import Scorer
from rg_env.attack.attacks import POLICIES
from rg_env.base.errors import ConfigError
from rg_env.configuration.config import ScorerConfig
from rg_env.scoring import Status, guard
from rg_env.scoring.base_score import CHEAP, cheap_answers
from rg_env.tasks.upstream.oracles import CORRECTIONS, corrected

READ_HERE = sorted({*guard.CHECKS, *guard.REWRITES, *guard.ENTRIES, *CHEAP, *CORRECTIONS})


def entry_of(task: str, question: str = "", answer: str = "1", **metadata: Any) -> dict[str, Any]:
    return {"question": question, "answer": answer, "metadata": {"source_dataset": task} | metadata}


@pytest.mark.parametrize("task", READ_HERE)
def test_an_entry_of_a_task_that_is_read_here_has_a_largest_size(task: str) -> None:
    guard.check_size(entry_of(task, "x" * 64_000))
    for large in (entry_of(task, "x" * 2_100_000), entry_of(task, parts=[0] * 2_100_000)):
        with pytest.raises(guard.BrokenEntry, match=f"not a valid {task} item: it has [0-9,]+ bytes, more than"):
            guard.check_size(large)


def test_an_item_of_a_nearly_empty_board_of_queens_with_its_thousands_of_solutions_is_not_too_large() -> None:
    guard.check_size(entry_of("n_queens", valid_answers=["_" * 290 + str(number) for number in range(4000)]))


@pytest.mark.parametrize("task", sorted({*guard.CHECKS, *guard.REWRITES, *guard.ENTRIES}))
def test_an_own_answer_of_a_task_with_a_rule_has_a_largest_size(task: str) -> None:
    with pytest.raises(guard.BrokenEntry, match="own answer has more than"):
        guard.admit(entry_of(task, answer="1 " * 600_000), "1")


@pytest.mark.parametrize(
    "entry",
    [
        entry_of("time_intervals", "between " + "a to b. " * 8000, format="%H:%M"),
        entry_of("time_intervals", "between 1 to 2. " * 4000, format="%H:%M" * 4000),
        entry_of("time_intervals", "from " * 16_000 + " in HH:MM.", format="%H:%M"),
        entry_of("mahjong_puzzle", "initial cards " + "A" * 32_000 + "Add a B card and remove a B card " * 1000),
        entry_of("syllogism", "All a are b. " * 8000),
        entry_of("advanced_geometry", "A=(" + "1" * 64_000 + ", 1)", task_type="angle_measure"),
        entry_of("family_relationships", "Ann is married to Bob. " * 3000, person1="Ann", person2="Bob"),
    ],
    ids=lambda entry: f"{entry['metadata']['source_dataset']} {entry['question'][:12]}",
)
@pytest.mark.timeout(60)  # quadratic time would take longer
def test_a_large_question_is_read_in_linear_time_or_not_at_all(entry: dict[str, Any]) -> None:
    guard.check_size(entry)
    assert corrected(entry)["question"] == entry["question"]


@pytest.mark.parametrize("puzzle", [[[0] * 6000] * 10, "[1]," * 16_000, [[0] * 9] * 6000])
@pytest.mark.parametrize("task", ["sudoku", "mini_sudoku", "futoshiki"])
def test_a_board_that_nobody_makes_is_not_filled(task: str, puzzle: Any) -> None:
    assert cheap_answers(task, entry_of(task, puzzle=puzzle)) == []


def test_the_scorer_names_an_entry_that_is_too_large(scorer: Scorer) -> None:
    scored = scorer.score_answer(entry_of("coin_flip", "x" * 400_000), "0.5")
    assert (scored.status, scored.excused) == (Status.ERROR, True)
    assert scored.detail.startswith("the entry is not a valid coin_flip item: it has 400,")


class Text(str):
    """What a library might hand on as a string."""


def test_a_subclass_of_str_is_an_answer_as_any_other(scorer: Scorer) -> None:
    entry = entry_of("gcd", "Find the Greatest Common Divisor (GCD) of these numbers: 6 and 4.", answer="2")
    assert scorer.score_answer(entry, Text("2")).score == 1.0


def test_settings_in_the_place_of_the_first_argument_are_refused() -> None:
    with pytest.raises(ConfigError, match="Scorer takes the settings one by one"):
        Scorer(ScorerConfig(partial_credit="upstream"))  # type: ignore[arg-type]


def test_every_policy_of_the_attack_answers_a_blank_question() -> None:
    for blank in ("", "\n", " "):
        assert all(answer is None or isinstance(answer, str) for answer in (make(blank) for make in POLICIES.values()))
