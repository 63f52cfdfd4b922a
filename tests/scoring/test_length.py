from __future__ import annotations

import doctest
import itertools
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rg_env.config import LengthPenaltyConfig
from rg_env.scoring import group_penalty, length, length_penalty
from rg_env.scoring.length import LENGTH_PENALTIES, atropos_factors, dapo_additions, kimi_additions

MAX = 1000
ROOT = Path(__file__).parents[2]
unit = st.floats(0, 1)
groups = st.lists(st.tuples(unit, st.integers(0, 2 * MAX), st.booleans()), max_size=12)
kinds = st.sampled_from(list(LENGTH_PENALTIES))


def columns(group: list[tuple[float, int, bool]]) -> tuple[list[float], list[int], list[bool]]:
    return [row[0] for row in group], [row[1] for row in group], [row[2] for row in group]


def test_the_examples_in_its_docstrings_hold() -> None:
    result = doctest.testmod(length)
    assert result.attempted >= 5
    assert result.failed == 0


@given(groups, kinds, st.floats(0, 3))
def test_factors_and_additions_keep_their_ranges(group: list[Any], kind: str, weight: float) -> None:
    scores, lengths, correct = columns(group)
    penalty = group_penalty(LengthPenaltyConfig(kind=kind, weight=weight), scores, lengths, correct, MAX)
    assert len(penalty.factors) == len(penalty.additions) == len(group)
    assert all(0 <= factor <= 1 for factor in penalty.factors)
    low, high = {"dapo": (-1.0, 0.0), "kimi": (-0.5, 0.5)}.get(kind, (0.0, 0.0))
    assert all(low * weight <= addition <= high * weight for addition in penalty.additions)


@given(groups, kinds)
def test_of_two_equally_right_responses_the_longer_never_gets_more(group: list[Any], kind: str) -> None:
    scores, lengths, _ = columns(group)
    penalty = group_penalty(LengthPenaltyConfig(kind=kind), scores, lengths, [True] * len(group), MAX)
    rows = sorted(zip(lengths, penalty.factors, penalty.additions, strict=True))
    for (_, factor, addition), (_, longer_factor, longer_addition) in itertools.pairwise(rows):
        assert longer_factor <= factor
        assert longer_addition <= addition


@given(groups, unit, st.floats(0, 0.99))
def test_the_atropos_rule_never_raises_a_score(group: list[Any], correct_at: float, threshold: float) -> None:
    scores, lengths, _ = columns(group)
    penalized = length_penalty(scores, lengths, max_length=MAX, threshold=threshold, correct_at=correct_at)
    assert all(0 <= after <= before for after, before in zip(penalized, scores, strict=True))
    if any(score < correct_at for score in scores):
        assert penalized == scores


@pytest.mark.parametrize(("tokens", "factor"), [(0, 1.0), (750, 1.0), (800, 0.8), (1000, 0.0), (5000, 0.0)])
def test_the_atropos_rule_is_a_ramp_from_three_quarters_to_the_limit(tokens: int, factor: float) -> None:
    assert atropos_factors([1.0], [tokens], max_length=MAX) == pytest.approx([factor])


def test_the_atropos_rule_asks_the_whole_group() -> None:
    assert length_penalty([0.5, 1.0], [1000, 1000], max_length=MAX) == [0.0, 0.0]
    assert length_penalty([0.49, 1.0], [1000, 1000], max_length=MAX) == [0.49, 1.0]


@pytest.mark.parametrize(("tokens", "addition"), [(0, 0.0), (800, 0.0), (850, -0.25), (1000, -1.0), (1001, -1.0)])
def test_the_dapo_rule_is_a_ramp_over_its_buffer(tokens: int, addition: float) -> None:
    assert dapo_additions([tokens], max_length=MAX, buffer=200) == [addition]


def test_the_kimi_rule_rewards_only_short_and_right() -> None:
    assert kimi_additions([100, 300, 100, 300], [True, True, False, False]) == [0.5, -0.5, 0.0, -0.5]


@given(st.integers(0, MAX), st.lists(st.booleans(), min_size=1, max_size=8))
def test_the_kimi_rule_leaves_a_group_of_one_length_alone(tokens: int, correct: list[bool]) -> None:
    assert kimi_additions([tokens] * len(correct), correct) == [0.0] * len(correct)


def test_settings_left_open_follow_the_engine() -> None:
    open_ = group_penalty(LengthPenaltyConfig(kind="dapo"), [1.0], [875], [True], max_length=1000)
    assert open_.additions == [-0.5]  # a buffer of 250
    own = LengthPenaltyConfig(kind="dapo", max_length=100, buffer=10, weight=2.0)
    assert group_penalty(own, [1.0], [95], [True], max_length=1000).additions == [-1.0]


@pytest.mark.parametrize("kind", LENGTH_PENALTIES)
def test_an_empty_group_stays_empty(kind: str) -> None:
    penalty = group_penalty(LengthPenaltyConfig(kind=kind), [], [], [], MAX)
    assert penalty.factors == penalty.additions == []


@pytest.mark.parametrize("kind", LENGTH_PENALTIES)
def test_the_page_has_the_effect_of_every_rule(kind: str) -> None:
    assert f"| {LENGTH_PENALTIES[kind].effect} |" in (ROOT / "docs" / "rewards.md").read_text()


@given(groups, kinds, st.integers(1, 1500), unit, unit, st.integers(1, 500), st.floats(0, 3))
def test_a_rule_reads_the_settings_that_it_names(
    group: list[Any], kind: str, max_length: int, threshold: float, correct_at: float, buffer: int, weight: float
) -> None:
    """Any other value of the others changes nothing; every setting belongs to some rule."""
    drawn = {
        "max_length": max_length,
        "threshold": min(threshold, 0.99),
        "correct_at": correct_at,
        "buffer": buffer,
        "weight": weight,
    }
    assert {"kind", *drawn} == {field.name for field in fields(LengthPenaltyConfig)}
    assert {name for rule in LENGTH_PENALTIES.values() for name in rule.settings} == set(drawn)
    used = {name: value for name, value in drawn.items() if name in LENGTH_PENALTIES[kind].settings}
    one, other = LengthPenaltyConfig(kind=kind, **drawn), LengthPenaltyConfig(kind=kind, **used)
    assert group_penalty(one, *columns(group), MAX) == group_penalty(other, *columns(group), MAX)
