from __future__ import annotations

import inspect
import re

import pytest
from reasoning_gym.factory import DATASETS

from rg_env.scoring import guard

_EVALUATES = re.compile(r"\b(eval|exec|parse_expr|sympify)\(")


def test_the_tasks_that_run_answers_are_those_whose_scorers_evaluate() -> None:
    found = {
        task for task, (dataset, _) in DATASETS.items() if _EVALUATES.search(inspect.getsource(dataset.score_answer))
    }
    trusted = {"number_sorting"}  # evaluates the entry's own answer, and the model's with ast.literal_eval
    assert found - trusted == guard.EVALUATING_TASKS


@pytest.mark.parametrize(
    ("answer", "word"),
    [("4\0", "NUL"), ("\ud83d", "surrogate"), ("ü\udfff", "surrogate"), ("\ud83d\ude00", "surrogate")],
)
def test_what_is_no_text_is_refused(answer: str, word: str) -> None:
    assert word in (guard.check("chain_sum", answer) or "")


@pytest.mark.parametrize("answer", ["", "4", "ä ≤ 漢字 😀", "\x01\n\t", "\U0010ffff", "\ud7ff\ue000"])
def test_every_other_text_passes(answer: str) -> None:
    assert guard.check("chain_sum", answer) is None
