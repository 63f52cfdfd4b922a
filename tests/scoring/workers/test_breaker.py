from __future__ import annotations

import pytest

from rg_env.scoring.workers.breaker import Breaker, honest_seconds


def hang(breaker: Breaker, task: str, count: int) -> float:
    """Let answers hang; returns the seconds that they cost."""
    cost = 0.0
    for number in range(count):
        limit = breaker.limit(task)
        cost += limit
        breaker.timed_out(task, b"%d" % number, limit)
    return cost


def test_hundreds_of_hangs_cost_a_few_limits() -> None:
    breaker = Breaker(timeout=5.0)
    assert hang(breaker, "coin_flip", 256) <= 3 * 5.0 + 253 * 0.5


def test_hangs_among_many_honest_answers_cost_little_too() -> None:
    breaker = Breaker(timeout=5.0)
    cost = 0.0
    for _ in range(100):
        cost += hang(breaker, "coin_flip", 1)
        for _ in range(20):
            breaker.finished("coin_flip")
    assert cost < 100


def test_other_tasks_keep_their_limit() -> None:
    breaker = Breaker(timeout=5.0)
    hang(breaker, "coin_flip", 10)
    assert breaker.limit("coin_flip") == 0.5
    assert breaker.limit("chain_sum") == 5.0


def test_a_task_recovers_when_its_answers_end() -> None:
    breaker = Breaker(timeout=5.0)
    hang(breaker, "coin_flip", 256)
    breaker.finished("coin_flip")
    assert breaker.limit("coin_flip") == 0.5
    for _ in range(128):
        breaker.finished("coin_flip")
    assert breaker.limit("coin_flip") == 5.0


def test_one_hang_in_a_hundred_shortens_nothing() -> None:
    breaker = Breaker(timeout=5.0)
    for _ in range(20):
        assert breaker.limit("coin_flip") == 5.0
        hang(breaker, "coin_flip", 1)
        for _ in range(99):
            breaker.finished("coin_flip")


def test_short_limits_are_not_shortened_to_nothing() -> None:
    for timeout in (0.2, 0.5, 1.0, 60.0):
        breaker = Breaker(timeout)
        hang(breaker, "coin_flip", 4)
        assert breaker.limit("coin_flip") == min(timeout, max(0.5, timeout / 10))


@pytest.mark.parametrize("task", ["coin_flip", "intermediate_integration", "simple_integration"])
def test_no_limit_is_shortened_below_what_correct_answers_need(task: str) -> None:
    breaker = Breaker(timeout=5.0)
    cost = hang(breaker, task, 256)
    assert breaker.limit(task) == honest_seconds(task)
    assert cost == 3 * 5.0 + 253 * honest_seconds(task)
    assert cost < 256 * 5.0 / 2
    assert honest_seconds("intermediate_integration") > honest_seconds("coin_flip")


def test_only_a_full_hang_is_remembered() -> None:
    breaker = Breaker(timeout=5.0)
    assert not breaker.has_hung(lambda: b"full")
    breaker.timed_out("coin_flip", b"full", 5.0)
    breaker.timed_out("coin_flip", b"short", 0.5)
    assert breaker.has_hung(lambda: b"full")
    assert not breaker.has_hung(lambda: b"short")


def test_the_memory_is_bounded_and_keeps_what_is_met_again() -> None:
    breaker = Breaker(timeout=5.0)
    breaker.timed_out("coin_flip", b"met", 5.0)
    for number in range(3 * 4096):
        breaker.timed_out("coin_flip", b"%d" % number, 5.0)
        assert breaker.has_hung(lambda: b"met")
    assert not breaker.has_hung(lambda: b"0")
