from __future__ import annotations

import pytest

from rg_env.curriculum.solve_rate import Tally, counts, tally
from rg_env.scoring.types import AnswerScore, ParsedResponse, Status, Verdict, Violation

PARSED, BROKEN = ParsedResponse("t", "7", None), ParsedResponse(None, None, Violation.NO_THINK)


def scored(score: float) -> AnswerScore:
    return AnswerScore(score, score, score, Status.OK)


@pytest.mark.parametrize(
    ("verdict", "truncated", "expected"),
    [
        (Verdict(PARSED, scored(1.0)), False, True),
        (Verdict(PARSED, scored(0.0)), False, True),
        (Verdict(PARSED, AnswerScore.unscored(Status.REJECTED, "code")), False, True),
        (Verdict(PARSED, scored(1.0)), True, False),
        (Verdict(BROKEN, AnswerScore.unscored(Status.OK)), False, False),
        (Verdict(PARSED, AnswerScore.unscored(Status.TIMEOUT)), False, False),
        (Verdict(PARSED, AnswerScore.unscored(Status.CRASHED)), False, False),
        (Verdict(PARSED, AnswerScore.unscored(Status.ERROR)), False, False),
        (Verdict(PARSED, AnswerScore.unscored(Status.REJECTED, starved=True)), False, False),
        (Verdict.no_response("the request failed"), False, False),
    ],
)
def test_what_says_nothing_about_difficulty_does_not_count(verdict: Verdict, truncated: bool, expected: bool) -> None:
    assert counts(verdict, truncated) is expected


def test_solved_is_from_the_threshold_on() -> None:
    rollouts = [(Verdict(PARSED, scored(score)), False) for score in (0.0, 0.5, 0.7, 0.99, 1.0)]
    rollouts.append((Verdict(PARSED, scored(1.0)), True))
    assert tally(rollouts, 0.99) == Tally(2, 5)
    assert tally(rollouts, 0.5) == Tally(4, 5)
