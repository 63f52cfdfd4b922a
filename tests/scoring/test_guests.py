"""Tasks that users' modules bring: each answer in a process of its own, unless their class says otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from rg_env.runner import caller_pool, caller_worker, handover
from rg_env.scoring import AnswerScore, Scorer, Status
from rg_env.scoring import pools as pools_module
from tests.scoring.conftest import guest_entry as entry

pytestmark = pytest.mark.usefixtures("guests")


@pytest.fixture(scope="module")
def one_worker() -> Iterator[Scorer]:
    """For tests that change nothing in its processes."""
    with Scorer(workers=1) as shared:
        yield shared


@pytest.mark.parametrize("config", [{}, {"right": 4}])
@pytest.mark.parametrize(("task", "later"), [("acting", 0.0), ("sharing", 1.0)])
def test_no_answer_changes_the_score_of_another_unless_the_task_shares(
    task: str, later: float, config: dict[str, Any]
) -> None:
    with Scorer(workers=1) as scorer:
        assert scorer.score_answer(entry(task), "4", config).raw == 1.0
        assert scorer.score_answer(entry(task), "2", config).raw == 0.0
        scorer.score_answer(entry(task), "remember", config)
        assert scorer.score_answer(entry(task), "2", config).raw == later


@pytest.mark.parametrize(
    ("right", "answer", "score", "status"),
    [("1", "0.5", 0.5, "ok"), ("1", "9", 0.0, "ok"), ("1", "-1", 0.0, "ok"), ("4", "9", 0.0, "error")],
)
def test_a_number_beyond_one_is_no_score_of_a_users_task(
    one_worker: Scorer, right: str, answer: str, score: float, status: str
) -> None:
    scored = one_worker.score_answer({**entry("points"), "answer": right}, answer)
    assert (scored.score, scored.status) == (score, status)
    assert ("which is not a number from 0 to 1" in scored.detail) == (answer != "0.5")


def test_options_that_cannot_be_set_up_are_an_error_of_the_item(one_worker: Scorer) -> None:
    scored = one_worker.score_answer(entry("acting"), "4", {"right": -1})
    assert scored.status is Status.ERROR
    assert "right must not be negative" in scored.detail


@pytest.mark.parametrize("config", [{}, {"right": 5}])
def test_a_dataset_that_waits_while_it_is_made_is_an_error_and_no_timeout_of_an_answer(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a prepared process, and, with options, in the process of the answer."""
    if config:
        monkeypatch.setattr(caller_pool, "_PREPARE_SECONDS", 0.5)
    else:
        monkeypatch.setattr(caller_worker, "START_SECONDS", 4.0)
    with Scorer(workers=1) as scorer:
        for _ in range(2):
            scored = scorer.score_answer(entry("waiting"), "4", config)
            while scored.had_no_core:  # it has not got as far as waiting
                scored = scorer.score_answer(entry("waiting"), "4", config)
            assert (scored.status, scored.excused) == (Status.ERROR, True)
            assert "it was not ready in" in scored.detail
            assert "inf" not in scored.detail


def test_a_task_that_no_module_registers_is_an_error_that_names_the_remedy(one_worker: Scorer) -> None:
    scored = one_worker.score_answer(entry("nobodys"), "4")
    assert scored.status is Status.ERROR
    assert scored.detail.startswith("no scorer for nobodys: ValueError: no module registers it: import one")
    assert scored.detail.endswith("or name it in `imports` (--imports)")


def test_prepared_processes_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools_module, "_MOST_PREPARED", 2)
    with Scorer(workers=1) as scorer:
        for task in ("acting", "second", "acting", "third"):
            scorer.score_answer(entry(task), "4")
        assert len(scorer._pools._prepared) == 2
        assert any(b"third" in target for target in scorer._pools._prepared)


def test_tasks_in_turn_do_not_always_end_the_process_of_the_next_one() -> None:
    """Of more tasks than may be prepared. A pool without a job starts no process."""
    tasks = [f"task{number}" for number in range(24)]

    async def pools_in_turn(scorer: Scorer) -> list[caller_pool.ScorerPool]:
        return [await scorer._pools.for_target(task, pools_module.target_of(task, {})) for task in tasks * 10]

    with Scorer(workers=1) as scorer:
        pools = handover.wait(pools_in_turn(scorer))
    assert len(set(pools)) < len(pools) * 3 / 4


def test_a_prepared_process_that_answers_wait_for_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """More tasks than prepared processes, more answers than workers."""
    tasks = ["acting", "second", "third"]
    monkeypatch.setattr(pools_module, "_MOST_PREPARED", 1)

    async def score_all(scorer: Scorer) -> list[AnswerScore]:
        return await asyncio.gather(*(scorer.score_answer_async(entry(task), "4") for task in tasks * 3))

    with Scorer(workers=1) as scorer:
        assert [scored.raw for scored in asyncio.run(score_all(scorer))] == [1.0] * 9
