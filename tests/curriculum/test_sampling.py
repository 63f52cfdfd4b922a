from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rg_env.curriculum.sampling import adaptive_shares, systematic, usefulness
from rg_env.curriculum.solve_rate import Tally

names = st.integers(1, 12).map(lambda count: [f"task_{number}" for number in range(count)])
weighted = names.flatmap(lambda tasks: st.fixed_dictionaries({task: st.floats(0.01, 100) for task in tasks}))


@given(weighted, st.floats(0, 1), st.data())
def test_every_task_keeps_the_floor_of_its_weight(weights, floor, data):
    useful = {task: data.draw(st.floats(1e-3, 1)) for task in weights}
    shares = adaptive_shares(weights, useful, floor)
    assert math.fsum(shares.values()) == pytest.approx(1)
    whole = math.fsum(weights.values())
    for task, weight in weights.items():
        assert shares[task] >= floor * weight / whole - 1e-12
        assert shares[task] > 0


def test_equally_useful_tasks_and_a_floor_of_one_give_the_weights():
    weights = {"a": 1.0, "b": 3.0}
    assert adaptive_shares(weights, {"a": 0.4, "b": 0.4}, 0.0) == pytest.approx({"a": 0.25, "b": 0.75})
    assert adaptive_shares(weights, {"a": 1.0, "b": 0.01}, 1.0) == pytest.approx({"a": 0.25, "b": 0.75})
    shares = adaptive_shares(weights, {"a": 1.0, "b": 0.5}, 0.25)
    assert shares["a"] == pytest.approx(0.25 * 0.25 + 0.75 * 1 / 2.5)


def test_usefulness_is_largest_at_one_half():
    rates = [usefulness([Tally(solved, 80, 80)]) for solved in range(0, 81, 10)]
    assert max(rates) == rates[4] == 1.0
    assert rates == pytest.approx(rates[::-1])
    assert 0 < rates[0] < rates[1] < rates[2] < rates[3]


def test_an_unknown_solve_rate_is_fully_useful():
    assert usefulness([]) == 1.0
    assert usefulness([Tally(7, 7, 7)]) == 1.0
    assert usefulness([Tally(8, 8, 8)]) < 1.0
    assert usefulness([Tally(31, 31, 64)]) == 1.0, "most rollouts do not count"
    assert usefulness([Tally(32, 32, 64)]) < 0.2


@given(weighted, st.integers(1, 40), st.integers(0, 10**6))
def test_a_batch_holds_the_shares_at_most_one_off(weights, count, key):
    shares = adaptive_shares(weights, dict.fromkeys(weights, 1.0), 1.0)
    tasks = systematic(shares, count, key)
    assert len(tasks) == count
    found = Counter(tasks)
    for task, share in shares.items():
        exact = share * count
        assert math.floor(exact - 1e-9) <= found[task] <= math.ceil(exact + 1e-9)


def test_over_many_batches_every_task_gets_its_share():
    shares = {"a": 0.5, "b": 0.3, "c": 0.13, "d": 0.07}
    batches = 4000
    found = Counter(task for key in range(batches) for task in systematic(shares, 5, "unbiased", key))
    for task, share in shares.items():
        # A task's number in a batch takes one of two neighboring values: its standard deviation is at most 1/2.
        assert found[task] / batches == pytest.approx(5 * share, abs=4 * 0.5 / math.sqrt(batches))


def test_rows_of_a_task_are_anywhere_in_the_batch():
    shares = {"a": 0.5, "b": 0.5}
    first = Counter(systematic(shares, 8, key)[0] for key in range(400))
    assert 140 < first["a"] < 260


def test_small_tasks_meet_in_one_batch():
    """In a fixed order of the tasks, neighbors with small shares would never be drawn together."""
    shares = {f"task_{number}": 0.1 for number in range(10)}
    pairs = {frozenset(systematic(shares, 2, key)) for key in range(600)}
    assert len(pairs) == 45
