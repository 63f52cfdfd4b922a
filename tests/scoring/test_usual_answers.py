r"""Answers as models write them, by the kind of the right answer, in `tests/data/questions/usual_answers.json`.

A case has a right answer in the form of GSM8K, MATH, AIME, SciBench, DROP, MMLU, ARC or GPQA; the scorers that read it;
`right`: other spellings of it; `refused`: right ones that at least one of these scorers does not pay; and `wrong`.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import pytest

from rg_env.scoring.file_scorers import FileQuestion, file_question, score_here
from rg_env.tasks.item import SCORER_KEY
from tests.scoring.public_files import FOLDER

KINDS = json.loads((FOLDER / "usual_answers.json").read_text())
JUNK = ("x=x", "1=1", r"\emptyset", "()", "[]", "", "I don't know", "none of these", "x", "?", "...")
"""What is wrong for every right answer but one."""


def questions_of(case: dict[str, Any]) -> dict[str, FileQuestion]:
    """Return what each scorer of a case has read of its right answer."""
    questions = {}
    for scorer in case["scorers"]:
        facts = {"source_dataset": "mine", SCORER_KEY: scorer, "tolerance": 1e-6, "options": case.get("options")}
        asked = file_question({"question": "?", "answer": case["gold"], "metadata": facts})
        assert isinstance(asked, FileQuestion)
        questions[scorer] = asked
    return questions


LONG = [pytest.param(kind, marks=pytest.mark.long) for kind in ("expressions", "intervals")]


@pytest.mark.parametrize("kind", [*sorted(KINDS.keys() - {"expressions", "intervals"}), *LONG])
def test_usual_spellings_are_paid_and_wrong_answers_are_not(kind: str) -> None:
    pytest.importorskip("math_verify")
    for case in KINDS[kind]:
        questions = questions_of(case).values()

        def paid(answer: str, questions: Collection[FileQuestion] = questions) -> list[bool]:
            return [score_here(asked, answer) == 1 for asked in questions]

        for answer in (case["gold"], *case["right"]):
            assert all(paid(answer)), (case["gold"], answer)
        for answer in case.get("refused", ()):
            assert not all(paid(answer)), f"no longer refused: {answer} for {case['gold']}"
        for answer in (*case["wrong"], *JUNK):
            if answer not in (case["gold"], *case["right"]):
                assert not any(paid(answer)), (case["gold"], answer)


def test_few_right_spellings_are_refused() -> None:
    cases = [case for kind in KINDS.values() for case in kind]
    right, refused = (sum(len(case.get(key, ())) for case in cases) for key in ("right", "refused"))
    assert len(cases) > 90 and right > 1200
    assert refused / (right + refused) < 0.02
