from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rg_env.curriculum.rules import MIN_COUNTED, RECENT, interval, moved, next_level
from rg_env.curriculum.solve_rate import Tally
from rg_env.tasks.levels import scale_of

TARGET = 0.7


def groups(*solved: int, of: int = 8) -> list[Tally]:
    return [Tally(number, of) for number in solved]


tallies = st.integers(0, 8).flatmap(lambda counted: st.tuples(st.integers(0, counted), st.just(counted)))
histories = st.lists(tallies.map(lambda numbers: Tally(*numbers)), max_size=20)


@given(st.floats(0, 1), histories, st.floats(0.05, 0.95))
def test_the_rule_stays_in_range_and_has_evidence(complexity, history, target):
    change, evidence = interval(history, target)
    assert 0 <= moved(complexity, change) <= 1
    assert abs(change) <= 0.1
    if evidence is None:
        assert change == 0
        return
    assert evidence.rollouts >= MIN_COUNTED
    assert "\n" not in evidence.reason
    if change:
        assert (change > 0) == (evidence.solve_rate > target)
    assert evidence.lower <= evidence.solve_rate + 1e-12 and evidence.solve_rate <= evidence.upper + 1e-12


def test_fewer_than_eight_rollouts_that_count_move_nothing():
    few = [Tally(0, 1)] * 7
    assert interval(few, TARGET) == (0.0, None)
    assert interval([*few, Tally(0, 4)], TARGET)[1] is not None
    assert interval([Tally(0, 0)] * 20, TARGET) == (0.0, None)


def change(history):
    return round(interval(history, TARGET)[0], 4)


class TestInterval:
    def test_moves_only_when_the_interval_is_beyond_the_target(self):
        assert change(groups(8, 8, 8)) == 0.0
        assert change(groups(8, 8, 8, 8)) == 0.05
        assert change(groups(0)) == 0.0
        assert change(groups(0, 0)) == -0.05
        assert change(groups(*[5] * 16)) == 0.0, "0.625 is within the margin"

    def test_far_from_the_target_the_step_is_larger(self):
        assert change(groups(*[8] * 16)) == 0.1
        assert change(groups(*[0] * 16)) == -0.1

    def test_more_solved_rollouts_never_lower_the_bounds(self):
        chooser = random.Random(1)
        for _ in range(200):
            history = [chooser.randint(0, 7) for _ in range(chooser.randint(1, 6))]
            more = list(history)
            more[chooser.randrange(len(more))] += 1
            less_high, more_high = (interval(groups(*one), TARGET)[1] for one in (history, more))
            assert less_high.lower <= more_high.lower and less_high.upper <= more_high.upper

    def test_rollouts_of_one_group_count_less_than_rollouts_of_many(self):
        histories = groups(16, of=16), groups(*[1] * 16, of=1)
        one_group, many = (interval(history, TARGET)[1] for history in histories)
        assert one_group.solve_rate == many.solve_rate == 1
        assert one_group.lower < 0.5 < 0.85 < many.lower

    def test_old_groups_are_forgotten(self):
        assert change(groups(*[0] * 30, *[8] * RECENT)) == 0.1

    @pytest.mark.parametrize("correlation", [0.0, 0.3, 0.5, 0.7])
    @pytest.mark.parametrize("per_batch", [1, 8])
    def test_a_policy_exactly_at_the_target_seldom_moves_the_level(self, correlation, per_batch):
        chooser = random.Random(7)
        seen, moves = 0, 0
        for _ in range(10):
            history: list[Tally] = []
            for _ in range(200 // per_batch):
                for _ in range(per_batch):
                    chance = TARGET
                    if correlation:
                        size = 1 / correlation - 1
                        chance = chooser.betavariate(TARGET * size, (1 - TARGET) * size)
                    history.append(Tally(sum(chooser.random() < chance for _ in range(8)), 8))
                seen += per_batch
                if change(history):
                    moves += 1
                    history = []
        assert moves / seen <= 0.025


class TestNextLevel:
    scale = scale_of("spell_backward", {})

    def test_goes_on_until_the_level_changes(self):
        assert self.scale is not None
        level = self.scale.level
        complexity, seen = 0.0, [level(0.0)]
        while (after := next_level(complexity, 0.05, level)) != complexity:
            complexity = after
            seen.append(level(complexity))
        assert seen[-1] == level(1.0)
        assert len(seen) == len({str(one) for one in seen})

    def test_ends_where_no_other_level_follows(self):
        assert self.scale is not None
        assert next_level(1.0, 0.05, self.scale.level) == 1.0
        assert next_level(0.0, -0.05, self.scale.level) == 0.0
        assert next_level(0.5, 0.0, self.scale.level) == 0.5
        assert next_level(0.5, 0.05, lambda _: "same") == 0.5
