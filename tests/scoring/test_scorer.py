"""What callers see of scoring, with real processes."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import pickle
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import reasoning_gym
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reasoning_gym.factory import DATASETS

from rg_env.base.errors import ConfigError, ScorerPoolError
from rg_env.configuration.config import ScorerConfig
from rg_env.configuration.modules import IMPORTS
from rg_env.runner import caller_pool as pool
from rg_env.runner.caller_worker import Limit, Worker
from rg_env.runner.failures import Failure, JobFailedError
from rg_env.scoring import AnswerScore, Scorer, Status, Verdict, Violation, base_score, guard, shared_scorer
from rg_env.scoring import pools as pools_module
from rg_env.scoring import scorer as scorer_module
from rg_env.tasks import encode_entry, entry_json
from rg_env.tasks.upstream import oracles
from tests.programs import endless_guard
from tests.running import ROOT
from tests.scoring.conftest import guest_entry

Item = Callable[..., dict[str, Any]]
TASKS = sorted(set(DATASETS) - {"composite"})


def in_process(entry: dict[str, Any], text: str, **options: Any) -> float:
    """Upstream's own score; 0 where it raises."""
    dataset = reasoning_gym.create_dataset(entry["metadata"]["source_dataset"], seed=1, size=5, **options)
    try:
        score = dataset.score_answer(text, copy.deepcopy(entry))
    except ValueError:
        return 0.0
    return min(1.0, float(score))


@pytest.mark.parametrize("task", TASKS)
def test_oracle_answers_score_what_the_task_itself_gives(scorer: Scorer, item: Item, task: str) -> None:
    entry = item(task)
    before = copy.deepcopy(entry)
    answer = str(entry["answer"])
    scored = scorer.score_answer(entry, answer)
    assert entry == before
    assert scored.status is Status.OK, scored.detail
    assert scored.raw == in_process(entry, answer)
    assert scored.tagged == in_process(entry, f"<answer>{answer}</answer>")
    assert scored.score == max(scored.raw, scored.tagged)
    if entry["answer"] is not None:
        assert scored.score == 1.0


def test_options_of_the_dataset_reach_its_scorer(scorer: Scorer, item: Item) -> None:
    entry = item("decimal_arithmetic")
    nearly = str(Decimal(entry["answer"]) + Decimal("0.004"))
    scores = [scorer.score_answer(entry, nearly, {"max_num_decimal_places": n, "size": 10**6}).raw for n in (2, 5)]
    assert scores == [1.0, 0.0]
    assert scorer.score_answer(entry, nearly).raw == in_process(entry, nearly)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(exclude_categories=())), st.sampled_from(["chain_sum", "boxnet", "coin_flip"]))
def test_no_text_makes_it_raise(scorer: Scorer, item: Item, answer: str, task: str) -> None:
    scored = scorer.score_answer(item(task), answer)
    assert 0 <= scored.score <= 1
    assert (scored.raw is None) == (scored.tagged is None) == (scored.status is not Status.OK)
    assert scored.status is Status.OK or (scored.score == 0 and scored.detail)
    scored.detail.encode("utf-8")


@pytest.mark.parametrize("answer", [None, 4, b"4", ["4"], "4\0", "\ud800", "4" * 8193])
def test_what_is_no_answer_is_rejected(scorer: Scorer, item: Item, answer: Any) -> None:
    scored = scorer.score_answer(item("chain_sum"), answer)
    assert (scored.raw, scored.tagged, scored.score, scored.status) == (None, None, 0.0, Status.REJECTED)
    assert scored.detail


def test_an_answer_on_which_the_scorer_raises_is_wrong(scorer: Scorer, item: Item) -> None:
    """Otherwise an answer could excuse itself with `on_scorer_failure=mask`."""
    scored = scorer.score_answer(item("calendar_arithmetic", tasks=["count_days"]), "9" * 400)
    assert (scored.raw, scored.score, scored.status, scored.excused) == (0.0, 0.0, Status.OK, False)
    assert scored.detail.startswith("raw: OverflowError")
    entry = item("prime_factorization")
    scored = scorer.score_answer(entry, entry["answer"])
    assert (scored.raw, scored.tagged, scored.score, scored.status) == (1.0, 0.0, 1.0, Status.OK)
    assert scored.detail.startswith("tagged: ValueError")


def test_an_item_whose_own_answer_the_scorer_raises_on_is_an_error(scorer: Scorer, item: Item) -> None:
    entry = item("calendar_arithmetic")
    del entry["metadata"]["task"]
    scored = scorer.score_answer(entry, "Monday")
    assert (scored.raw, scored.score, scored.status, scored.excused) == (None, 0.0, Status.ERROR, True)
    assert "own answer" in scored.detail


@pytest.mark.parametrize("entry", [{}, {"metadata": None}, {"metadata": {"source_dataset": 3}}])
def test_an_entry_without_its_task_or_a_response_that_is_no_text_is_the_callers_mistake(
    scorer: Scorer, item: Item, entry: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match="source_dataset"):
        scorer.score_answer(entry, "4")
    with pytest.raises(ConfigError, match="a response must be a string, not dict; "):
        scorer.score_response(item("chain_sum"), entry)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("own", "right", "wrong"),
    [
        ("[1, 2]", ["[1,2]", "[ 1,\n2 ]", "[1, 2.0]"], ["[2, 1]", "[1, 2] or so", "1, 2"]),
        ("5", ["5.0", " 5 "], ["6", "five"]),
        ('"a b"', ['"a\\u0020b"'], ["a b", '"ab"']),
        ('{"a": [1, 2]}', ['{"a":[1,2]}', '{"a": [1, 2.0]}'], ['{"a": [2, 1]}']),
    ],
)
def test_a_json_value_of_codeio_may_be_spelled_otherwise(
    scorer: Scorer, own: str, right: list[str], wrong: list[str]
) -> None:
    entry = {"question": "", "answer": own, "metadata": {"source_dataset": "codeio"}}
    assert {scorer.score_answer(entry, answer).score for answer in right} == {1.0}
    assert {scorer.score_answer(entry, answer).score for answer in wrong} == {0.0}


@pytest.mark.parametrize(
    "bad", [{"workers": 0}, {"workers": "many"}, {"timeout": 0.0}, {"timeout": float("nan")}, {"max_answer_chars": 0}]
)
def test_settings_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"Scorer\.{next(iter(bad))}=.*: must be"):
        Scorer(**bad)


# -- answers that end their process or keep it busy


@pytest.mark.usefixtures("guests")
def test_an_answer_that_ends_its_process_is_crashed(scorer: Scorer) -> None:
    scored = scorer.score_answer(guest_entry(), "exit")
    assert (scored.raw, scored.score, scored.status) == (None, 0.0, Status.CRASHED)
    assert scorer.score_answer(guest_entry(), "4").score == 1.0


def test_only_workers_read_entries_and_answers(scorer: Scorer, item: Item, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading takes time by their size, in which whatever else the trainer or the server does would wait."""

    def read(*_: object) -> None:
        raise AssertionError("read in the caller's process")

    readers = {guard: "admit", oracles: "corrected", entry_json: "as_made", base_score: "cheap_answers"}
    for module, name in readers.items():
        monkeypatch.setattr(module, name, read)
        monkeypatch.setattr(scorer_module, name, read, raising=False)
    for task in ("sudoku", "knights_knaves", "number_sorting", "rearc"):
        entry = item(task)
        assert scorer.score_answer(entry, entry["answer"]).score == 1.0
    assert scorer.score_answer(item("coin_flip"), "9").status is Status.REJECTED
    broken = {"question": "?", "answer": "[", "metadata": {"source_dataset": "number_sorting"}}
    assert scorer.score_answer(broken, "[]").status is Status.ERROR


def test_a_guard_that_does_not_end_costs_its_own_answer_alone(item: Item, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools_module, "_MAKE_SCORER", endless_guard.MAKE_SCORER)
    entry = item("chain_sum")
    with Scorer(workers=1, timeout=1.0) as scorer:
        monkeypatch.setattr(pool, "WALL_FACTOR", 10_000.0)
        scored = scorer.score_answer(entry, "endless")
        assert (scored.status, scored.excused) == (Status.TIMEOUT, False)
        assert scorer.score_answer(entry, entry["answer"]).score == 1.0


# -- answers that hang


@pytest.fixture(scope="module")
def impatient() -> Iterator[Scorer]:
    with Scorer(workers=1, timeout=1.0) as shared:
        yield shared


@pytest.fixture
def cores_to_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little CPU time this machine has for a worker: wait until it has used up its limit."""
    monkeypatch.setattr(pool, "WALL_FACTOR", 10_000.0)


@pytest.mark.usefixtures("guests", "cores_to_spare")
@pytest.mark.parametrize("answer", ["spin", "sleep"])
def test_an_answer_that_takes_too_long_times_out_and_harms_no_other(impatient: Scorer, item: Item, answer: str) -> None:
    scored = impatient.score_answer(guest_entry(), answer)
    assert (scored.raw, scored.score, scored.status, scored.excused) == (None, 0.0, Status.TIMEOUT, False)
    assert impatient.score_answer(item("coin_flip"), "4").status is not Status.TIMEOUT


def when_asked(monkeypatch: pytest.MonkeyPatch, act: Callable[[Worker, bytes, float], None]) -> None:
    """Call `act` with a worker that is about to get an answer, what it gets, and its limit of CPU seconds."""
    ask_several = Worker.ask_several

    async def acting(worker: Worker, requests: Sequence[tuple[bytes, bytes]], limit: Limit) -> list[object]:
        for target, arguments in requests:
            if target and arguments:
                act(worker, arguments, limit.cpu)
        return await ask_several(worker, requests, limit)

    monkeypatch.setattr(Worker, "ask_several", acting)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_an_answer_whose_worker_never_gets_a_core_is_excused_and_never_remembered(
    item: Item, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = item("chain_sum")
    with Scorer(workers=1, timeout=0.1, normalize=True) as scorer:
        with monkeypatch.context() as busy:
            when_asked(busy, lambda worker, *_: os.kill(worker.pid, signal.SIGSTOP))
            scored = scorer.score_answer(entry, entry["answer"])
        assert (scored.raw, scored.score, scored.status, scored.excused) == (None, 0.0, Status.TIMEOUT, True)
        assert "no core was free" in scored.detail
        monkeypatch.setattr(pool, "WALL_FACTOR", 10_000.0)
        assert scorer.score_answer(entry, entry["answer"]).score == 1.0


def test_an_excused_form_of_an_answer_makes_the_answer_excused(item: Item, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = item("chain_sum")
    right = str(entry["answer"])

    async def run(self: Any, target: bytes, request: bytes, check: Any) -> Any:
        if pickle.loads(request)[1] == right:
            raise JobFailedError(Failure.TIMEOUT, "no core was free", excused=True)
        return check([0.01, 0.01])

    monkeypatch.setattr(pool.ScorerPool, "run", run)
    with Scorer(workers=1, normalize=True) as scorer:
        assert scorer.score_answer(entry, f"**{right}**").excused


def test_a_limit_counts_cpu_seconds_and_not_the_time_of_waiting_for_a_core(
    item: Item, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker is stopped for longer than its limit."""

    def interrupt(worker: Worker, _: bytes, cpu: float) -> None:
        os.kill(worker.pid, signal.SIGSTOP)
        threading.Timer(1.5 * cpu, os.kill, (worker.pid, signal.SIGCONT)).start()

    when_asked(monkeypatch, interrupt)
    monkeypatch.setattr(pool, "WALL_FACTOR", 10_000.0)
    entry = item("chain_sum")
    with Scorer(workers=1, timeout=0.5) as scorer:
        assert scorer.score_answer(entry, entry["answer"]).score == 1.0


@pytest.mark.usefixtures("guests", "cores_to_spare")
def test_waiting_behind_answers_that_take_long_is_not_held_against_an_honest_one(impatient: Scorer, item: Item) -> None:
    honest = item("chain_sum")
    with ThreadPoolExecutor(8) as threads:
        bad = [threads.submit(impatient.score_answer, guest_entry(), "spin") for _ in range(2)]
        good = [threads.submit(impatient.score_answer, honest, honest["answer"]) for _ in range(6)]
        assert [future.result().status for future in bad] == [Status.TIMEOUT] * 2
        assert [future.result().score for future in good] == [1.0] * 6


# -- responses


def test_a_response_is_judged_by_its_format_and_its_answer(scorer: Scorer, item: Item) -> None:
    entry = item("chain_sum")
    verdict = scorer.score_response(entry, f"<think>a</think><answer>{entry['answer']}</answer>")
    assert (verdict.scored.raw, verdict.scored.score, verdict.scored.status) == (1.0, 1.0, Status.OK)
    assert verdict.scored.tagged is not None
    assert verdict.scored.tagged < 1
    assert verdict.parsed.answer == entry["answer"]
    prefilled = scorer.score_response(entry, f"a</think><answer>{entry['answer']}</answer>", prefilled_think=True)
    assert prefilled.scored.score == 1.0
    long = scorer.score_response(entry, f"<think></think><answer>{'4' * 8193}</answer>")
    assert long.parsed.violation is Violation.ANSWER_TOO_LONG


def test_a_violation_asks_no_scorer_so_that_a_closed_one_can_tell(item: Item) -> None:
    entry = item("chain_sum")
    closed = Scorer()
    closed.close()
    closed.close()
    verdict = closed.score_response(entry, f"<answer>{entry['answer']}</answer>")
    assert verdict.parsed.violation is Violation.NO_THINK
    assert (verdict.scored.raw, verdict.scored.tagged, verdict.scored.score) == (None, None, 0.0)
    assert (verdict.scored.status, verdict.scored.detail) == (Status.OK, "")
    with pytest.raises(ScorerPoolError, match="closed"):
        closed.score_answer(entry, "4")


# -- in event loops


def test_an_event_loop_waits_for_many_answers_at_once(scorer: Scorer, item: Item) -> None:
    entries = [item(task, seed) for task in ("chain_sum", "sudoku", "countdown") for seed in (1, 2)]
    jobs = [(entry, f"<think></think><answer>{other['answer']}</answer>") for entry in entries for other in entries] * 4

    async def score_all() -> list[Verdict]:
        return await asyncio.gather(*(scorer.score_response_async(*job) for job in jobs))

    assert asyncio.run(score_all()) == [scorer.score_response(*job) for job in jobs]


def test_a_blocking_call_in_the_thread_of_a_loop_that_has_all_workers_busy(item: Item) -> None:
    entry = item("sudoku")

    async def both() -> list[float]:
        waiting = [asyncio.ensure_future(scorer.score_answer_async(entry, entry["answer"])) for _ in range(8)]
        await asyncio.sleep(0)
        blocking = scorer.score_answer(entry, entry["answer"])
        return [blocking.score, *(scored.score for scored in await asyncio.gather(*waiting))]

    with Scorer(workers=1) as scorer:
        assert asyncio.run(both()) == [1.0] * 9


def test_a_cancelled_rollout_takes_nothing_from_its_group(item: Item, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one whose answer a worker has, nor the first to need the baseline that all others wait for."""
    entry = item("sudoku")
    cancelled: list[int] = []

    async def cancel(*numbers: int) -> None:
        cancelled.extend(numbers)
        for number in numbers:
            tasks[number].cancel()
        await asyncio.wait([tasks[number] for number in numbers])

    def act(worker: Worker, arguments: bytes, cpu: float) -> None:
        """With one worker, the answers come in order, and then those that the baseline needs."""
        is_baseline = pickle.loads(arguments)[1] != entry["answer"]
        if not cancelled:
            asyncio.run_coroutine_threadsafe(cancel(0), loop).result()
        elif is_baseline and len(cancelled) == 1:
            asyncio.run_coroutine_threadsafe(cancel(1, 2), loop).result()

    when_asked(monkeypatch, act)

    async def group() -> list[Any]:
        nonlocal loop, tasks
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(scorer.score_answer_async(entry, entry["answer"])) for _ in range(8)]
        return await asyncio.gather(*tasks, return_exceptions=True)

    loop: asyncio.AbstractEventLoop
    tasks: list[asyncio.Task[AnswerScore]]
    with Scorer(workers=1) as scorer:
        results = asyncio.run(group())
    assert [isinstance(result, asyncio.CancelledError) for result in results] == [True] * 3 + [False] * 5
    assert [(scored.status, scored.score) for scored in results[3:]] == [(Status.OK, 1.0)] * 5


def test_a_loop_that_is_closed_while_it_waits_costs_no_worker(item: Item) -> None:
    entry = item("chain_sum")
    with Scorer(workers=1) as scorer:
        for _ in range(3):
            loop = asyncio.new_event_loop()
            tasks = [loop.create_task(scorer.score_answer_async(entry, entry["answer"])) for _ in range(4)]
            loop.run_until_complete(asyncio.sleep(0.001))
            loop.close()
            del tasks
        assert scorer.score_answer(entry, entry["answer"]).score == 1.0


# -- scorers of users


def test_a_users_scorer_has_workers_of_its_own(item: Item, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(ROOT / "tests" / "programs" / "guest_task.py", tmp_path / "rg_env_guest_task.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(IMPORTS, "rg_env_guest_task")
    entry = {"question": "1 + 1", "answer": "2", "metadata": {"source_dataset": "guest"}}
    with Scorer(workers=1, timeout=2.0) as scorer:
        assert [scorer.score_answer(entry, text).score for text in ("2", "3", "pay")] == [1.0, 0.0, 0.0]
        assert scorer.score_answer(item("chain_sum"), "no number").score < 0.1
        assert scorer.score_answer(entry, "2").score == 1.0


# -- sharing


def test_many_threads_share_few_workers(scorer: Scorer, item: Item) -> None:
    entries = [item(task, seed) for task in ("chain_sum", "gcd", "spell_backward", "spiral_matrix") for seed in (1, 2)]
    with ThreadPoolExecutor(32) as threads:
        jobs = [(entry, str(other["answer"])) for entry in entries for other in entries] * 4
        scores = list(threads.map(lambda job: scorer.score_answer(*job).raw or 0.0, jobs))
    assert scores == [in_process(*job) for job in jobs]


def test_one_scorer_per_process_and_settings() -> None:
    settings = ScorerConfig(workers=1)
    with ThreadPoolExecutor(8) as threads:
        (shared,) = set(threads.map(shared_scorer, [settings] * 8))
    assert shared_scorer(ScorerConfig(workers=1)) is shared
    with shared_scorer(ScorerConfig(workers=1, timeout=9.0)) as other:
        assert other is not shared
    shared.close()
    with shared_scorer(settings) as renewed:
        assert renewed is not shared


@pytest.mark.parametrize("task", ["arc_agi", "rearc", "graph_color", "knights_knaves", "complex_arithmetic", "codeio"])
def test_an_entry_that_went_through_json_is_scored_as_the_entry_itself(
    scorer: Scorer, cured_items: Callable[[str, int], list[dict[str, Any]]], task: str
) -> None:
    """Their items have tuples, numbers for keys, or NumPy's texts. `rg-env serve` gets them as JSON."""
    entry, other = cured_items(task, 2)
    answers = [json.dumps(entry["metadata"].get("possible_answer"))]
    for own in (entry["answer"], other["answer"]):
        if own is not None:
            answers.append(own)
    plain = json.loads(json.dumps(entry))
    tagged = json.loads(encode_entry(entry))
    best = 0.0
    for answer in answers:
        expected = scorer.score_answer(entry, answer)
        best = max(best, expected.score)
        for form in (plain, tagged):
            before = copy.deepcopy(form)
            assert scorer.score_answer(form, answer) == expected
            assert scorer.score_response(form, f"<think>…</think><answer>{answer}</answer>").scored == expected
            assert form == before
    assert best == 1.0


@pytest.mark.parametrize("grid", [5, [5], "text", None, {"__tuple__": 5}, {"__float__": "x"}])
def test_what_is_no_grid_never_raises(
    scorer: Scorer, cured_items: Callable[[str, int], list[dict[str, Any]]], grid: object
) -> None:
    entry = cured_items("rearc", 1)[0]
    entry["metadata"]["output"] = grid
    scored = scorer.score_answer(entry, entry["answer"])
    assert scored.score <= 0.05 and scored.status in (Status.OK, Status.ERROR)
