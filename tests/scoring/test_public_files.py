"""Usual spellings of right answers are paid and junk is not, in files in the form of fourteen public ones."""

from __future__ import annotations

import pytest

from rg_env.scoring.file_scorers import FileQuestion, file_question, score_here
from rg_env.tasks.item import SCORER_KEY
from tests.scoring.public_files import FOLDER, SCORERS, Question, junk, questions, spellings


def paid(question: Question, answer: str) -> bool:
    metadata = {"source_dataset": "mine", SCORER_KEY: question.scorer, **question.metadata}
    asked = file_question({"question": question.text, "answer": question.gold, "metadata": metadata})
    assert isinstance(asked, FileQuestion)
    return score_here(asked, answer) == 1


@pytest.mark.parametrize("name", SCORERS)
def test_spellings_are_paid_and_junk_is_not(name: str) -> None:
    if SCORERS[name][0] == "math":
        pytest.importorskip("math_verify")
    asked = list(questions(FOLDER / name))
    for place, question in enumerate(asked):
        refused = [text for text in spellings(question) if not paid(question, text)]
        assert not refused, question
        others = asked[place + 1 :] + asked[:place]
        assert not [text for text in junk(question, others) if paid(question, text)], question
