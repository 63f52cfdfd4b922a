from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rg_env.base.choices import LengthPenalty
from rg_env.base.errors import ConfigError
from rg_env.configuration.config import LengthPenaltyConfig
from rg_env.scoring import Penalty, length_penalty
from rg_env.scoring.length import LENGTH_PENALTIES, ScoredGroup, atropos, dapo, group_penalty, kimi

MAX = 1000
unit = st.floats(0, 1)
groups = st.lists(st.tuples(unit, st.integers(0, 2 * MAX), st.booleans()), max_size=12)
kinds = st.sampled_from(list(LENGTH_PENALTIES))
DEFAULT = LengthPenaltyConfig()


def of(rows: list[Any], **settings: Any) -> Penalty:
    columns = ([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])
    return group_penalty(LengthPenaltyConfig(**settings), ScoredGroup(*columns), MAX)


def test_the_setting_knows_each_rule() -> None:
    assert set(LENGTH_PENALTIES) == set(LengthPenalty)


@given(groups, kinds, st.floats(0, 3))
def test_factors_and_additions_keep_their_ranges(group: list[Any], kind: str, weight: float) -> None:
    penalty = of(group, kind=kind, weight=weight)
    assert len(penalty.factors) == len(penalty.additions) == len(group)
    assert all(0 <= factor <= 1 for factor in penalty.factors)
    low, high = {"dapo": (-1.0, 0.0), "kimi": (-0.5, 0.5)}.get(kind, (0.0, 0.0))
    assert all(low * weight <= addition <= high * weight for addition in penalty.additions)


@given(groups, kinds)
def test_of_two_equally_right_responses_the_longer_never_gets_more(group: list[Any], kind: str) -> None:
    penalty = of([(score, tokens, True) for score, tokens, _ in group], kind=kind)
    rows = sorted(zip([tokens for _, tokens, _ in group], penalty.factors, penalty.additions, strict=True))
    for (_, factor, addition), (_, longer_factor, longer_addition) in itertools.pairwise(rows):
        assert longer_factor <= factor
        assert longer_addition <= addition


@given(groups, unit, st.floats(0, 0.99))
def test_the_atropos_rule_never_raises_a_score(group: list[Any], correct_at: float, threshold: float) -> None:
    scores = [score for score, _, _ in group]
    penalized = length_penalty(
        scores, [tokens for _, tokens, _ in group], max_length=MAX, threshold=threshold, correct_at=correct_at
    )
    assert all(0 <= after <= before for after, before in zip(penalized, scores, strict=True))
    if any(score < correct_at for score in scores):
        assert penalized == scores


@pytest.mark.parametrize(("tokens", "factor"), [(0, 1.0), (750, 1.0), (800, 0.8), (1000, 0.0), (5000, 0.0)])
def test_the_atropos_rule_is_a_ramp_from_three_quarters_to_the_limit(tokens: int, factor: float) -> None:
    assert atropos(ScoredGroup([1.0], [tokens], [True]), MAX, DEFAULT).factors == pytest.approx([factor])


def test_the_atropos_rule_asks_the_whole_group() -> None:
    assert length_penalty([0.5, 1.0], [1000, 1000], max_length=MAX) == [0.0, 0.0]
    assert length_penalty([0.49, 1.0], [1000, 1000], max_length=MAX) == [0.49, 1.0]


@pytest.mark.parametrize(("tokens", "addition"), [(0, 0.0), (800, 0.0), (850, -0.25), (1000, -1.0), (1001, -1.0)])
def test_the_dapo_rule_is_a_ramp_over_its_buffer(tokens: int, addition: float) -> None:
    assert dapo(ScoredGroup([1.0], [tokens], [True]), MAX, LengthPenaltyConfig(buffer=200)).additions == [addition]


def test_the_kimi_rule_rewards_only_short_and_right() -> None:
    group = ScoredGroup([1.0, 1.0, 0.0, 0.0], [100, 300, 100, 300], [True, True, False, False])
    assert kimi(group, MAX, DEFAULT).additions == [0.5, -0.5, 0.0, -0.5]


@given(st.integers(0, MAX), st.lists(st.booleans(), min_size=1, max_size=8))
def test_the_kimi_rule_leaves_a_group_of_one_length_alone(tokens: int, solved: list[bool]) -> None:
    assert of([(1.0, tokens, right) for right in solved], kind="kimi").additions == [0.0] * len(solved)


def test_settings_left_open_follow_the_engine() -> None:
    assert of([(1.0, 875, True)], kind="dapo").additions == [-0.5]  # a buffer of 250
    assert of([(1.0, 95, True)], kind="dapo", max_length=100, buffer=10, weight=2.0).additions == [-1.0]


@pytest.mark.parametrize("limits", [{"max_length": 0}, {"max_length": MAX, "threshold": 1.0}])
def test_limits_out_of_range_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        length_penalty([1.0], [MAX], **limits)
