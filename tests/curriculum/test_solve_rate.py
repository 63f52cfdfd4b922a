from __future__ import annotations

import pytest

from rg_env.curriculum.solve_rate import RolloutFacts, Tally, tally, total
from rg_env.scoring.types import AnswerScore, ParsedResponse, Status, Verdict, Violation
from tests.curriculum.policies import facts, group


@pytest.mark.parametrize("change", [{"well_formed": False}, {"scorer_ok": False}, {"truncated": True}])
def test_what_says_nothing_about_difficulty_does_not_count(change):
    assert tally(group("gcd", 3), 0.99) == Tally(3, 8, 8)
    assert tally(group("gcd", 3, **change), 0.99) == Tally(0, 0, 8)


def test_solved_is_from_the_threshold_on():
    rollouts = [RolloutFacts(score, True, True, False) for score in (0.0, 0.5, 0.7, 0.99, 1.0)]
    one = group("gcd", 0)
    one = type(one)(one.task, None, 0, rollouts)
    assert tally(one, 0.99).solved == 2
    assert tally(one, 0.5).solved == 4


def test_a_verdict_becomes_facts():
    parsed, broken = ParsedResponse("t", "7", None), ParsedResponse(None, None, Violation.NO_THINK)
    assert RolloutFacts.of(Verdict(parsed, AnswerScore(1.0, 0.5, 1.0, Status.OK)), False).counts
    assert RolloutFacts.of(Verdict(parsed, AnswerScore.unscored(Status.REJECTED, "code")), False).counts
    assert not RolloutFacts.of(Verdict(parsed, AnswerScore(1.0, 0.5, 1.0, Status.OK)), True).counts
    assert not RolloutFacts.of(Verdict(broken, AnswerScore.unscored(Status.OK)), False).counts
    for status in (Status.TIMEOUT, Status.CRASHED, Status.ERROR):
        assert not RolloutFacts.of(Verdict(parsed, AnswerScore.unscored(status)), False).counts
    assert not RolloutFacts.of(Verdict.no_response("the request failed"), False).counts
    starved = AnswerScore.unscored(Status.REJECTED, starved=True)
    assert not RolloutFacts.of(Verdict(parsed, starved), False).counts


def test_totals():
    assert total([]) == Tally(0, 0, 0)
    assert total([Tally(1, 4, 8), Tally(2, 8, 8)]) == Tally(3, 12, 16)
    assert len(facts(3)) == 8
