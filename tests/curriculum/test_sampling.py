from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rg_env.curriculum.sampling import systematic

names = st.integers(1, 12).map(lambda count: [f"task_{number}" for number in range(count)])
weighted = names.flatmap(lambda tasks: st.fixed_dictionaries({task: st.floats(0.01, 100) for task in tasks}))


@given(weighted, st.integers(1, 40), st.integers(0, 10**6))
def test_a_batch_holds_the_shares_at_most_one_off(weights, count, key):
    shares = {task: weight / math.fsum(weights.values()) for task, weight in weights.items()}
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
