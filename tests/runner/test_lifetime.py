"""Processes: who starts, who dies, and what that costs. Linux only, as it looks into /proc."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rg_env.base.errors import ScorerPoolError
from rg_env.runner import caller_worker, guarded
from rg_env.scoring import AnswerScore, Scorer, Status
from tests.runner.processes import (
    fork_server_pid,
    fork_servers,
    is_alive,
    living_children,
    wait_until,
    zombies_of,
)
from tests.runner.test_functions import behave
from tests.running import ROOT, program, run_command

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
Item = Callable[..., dict[str, Any]]


def open_scorer(how: str, entry: dict[str, Any]) -> list[str]:
    return program("open_scorer", how, json.dumps(entry))


def test_closing_ends_every_process_even_one_that_spins() -> None:
    with guarded(behave, workers=2, timeout=60.0) as scorer, ThreadPoolExecutor(1) as threads:
        assert scorer.score("return", 1).value == 1.0
        server = fork_server_pid()
        hanging = threads.submit(scorer.score, "hang")
        assert wait_until(lambda: living_children(server))
        workers = living_children(server)
        scorer.close()
        with pytest.raises(ScorerPoolError):
            hanging.result(100)
    assert wait_until(lambda: not any(map(is_alive, {server, *workers})))


@pytest.mark.parametrize("trainer", ["idle", "scoring", "starting", "started_by_a_thread_that_has_ended"])
def test_no_process_outlives_its_trainer(item: Item, trainer: str) -> None:
    """Not even if a forked child of the trainer has a copy of its end of the sockets."""
    command = open_scorer(trainer, item("coin_flip"))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        child, server, *workers = [int(pid) for pid in process.stdout.readline().split()]
        try:
            assert bool(workers) == (trainer != "starting")  # a function of the user's has two for an answer
            if trainer == "idle" and sys.platform == "linux":  # whose kernel ends a stopped process with its parent
                os.kill(workers[0], signal.SIGSTOP)
            process.kill()
            assert wait_until(lambda: not any(map(is_alive, [server, *workers])))
            assert is_alive(child)
        finally:
            os.kill(child, signal.SIGKILL)


def test_no_worker_outlives_the_fork_server() -> None:
    with guarded(behave, workers=1, timeout=1.0, fresh=False) as scorer, ThreadPoolExecutor(1) as threads:
        scorer.score("return", 1)
        server = fork_server_pid()
        (worker,) = living_children(server)
        hanging = threads.submit(scorer.score, "hang")
        os.kill(server, signal.SIGKILL)
        assert wait_until(lambda: not is_alive(worker))
        assert hanging.result().status in (Status.TIMEOUT, Status.CRASHED)
        assert scorer.score("return", 1).value == 1.0


def test_a_forked_child_leaves_its_parents_scorer_alone_and_gets_its_own(item: Item) -> None:
    run_command(*open_scorer("used_by_a_forked_child", item("coin_flip")))


@pytest.mark.parametrize("answers", [1_500, pytest.param(10_000, marks=pytest.mark.weekly)])
def test_killing_workers_loses_and_changes_no_score(item: Item, answers: int) -> None:
    """The worker is killed after every 20 to 60 answers: seldom enough for the one retry that an answer has."""
    right, wrong = item("chain_sum", seed=1), item("chain_sum", seed=2)
    chance = random.Random(0)
    kills = set(itertools.accumulate(chance.randint(20, 60) for _ in range(answers // 60)))
    numbers, lock = itertools.count(), threading.Lock()
    with Scorer(workers=1, timeout=30.0) as scorer, ThreadPoolExecutor(8) as threads:
        scorer.score_answer(right, "4")
        server = fork_server_pid()

        def score(entry: dict[str, Any]) -> AnswerScore:
            outcome = scorer.score_answer(entry, right["answer"])
            with lock:  # so that no kill comes late, and two together
                if next(numbers) in kills:  # the worker has the answer of another thread
                    for worker in living_children(server):
                        with suppress(ProcessLookupError):
                            os.kill(worker, signal.SIGKILL)
            return outcome

        outcomes = list(threads.map(score, [right, wrong] * (answers // 2)))
    assert {outcome.status for outcome in outcomes} == {Status.OK}
    assert [outcome.raw == 1.0 for outcome in outcomes] == [True, False] * (answers // 2)


def test_a_pool_that_cannot_start_says_why_at_once_and_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, item: Item
) -> None:
    starts = tmp_path / "starts"
    fake = f"open({str(starts)!r}, 'a').write('x'); raise ImportError('no such wheel')"
    (tmp_path / "reasoning_gym.py").write_text(fake)
    environment = caller_worker.environment()
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), environment["PYTHONPATH"]])
    monkeypatch.setattr(caller_worker, "environment", lambda: environment)
    with Scorer(workers=2) as scorer, ThreadPoolExecutor(4) as threads:
        failures = [threads.submit(scorer.score_answer, item("chain_sum"), "4") for _ in range(8)]
        for failure in failures:
            with pytest.raises(ScorerPoolError, match=r"do not start: .*no such wheel") as caught:
                failure.result()
            assert "\n" not in str(caught.value)
    assert starts.read_text() == "x"


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs files without a folder")
def test_scoring_needs_no_folder_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container with a read-only file system."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with guarded("math:factorial", workers=1) as scorer:
        assert scorer.score(3).value == 6.0


def test_the_fork_server_has_one_thread_so_that_forking_is_safe(scorer: Scorer, item: Item) -> None:
    scorer.score_answer(item("chain_sum"), "4")
    assert len(list(Path(f"/proc/{fork_server_pid()}/task").iterdir())) == 1


def test_cancelled_calls_leave_no_zombies(item: Item) -> None:
    """Some are cancelled before their worker has said its pid."""
    entry = item("chain_sum")

    async def give_up() -> None:
        for _ in range(30):
            tasks = [asyncio.ensure_future(scorer.score_answer_async(entry, "4")) for _ in range(8)]
            await asyncio.sleep(0.002)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    with Scorer(workers=4) as scorer:
        scorer.score_answer(entry, "4")
        server = fork_server_pid()
        asyncio.run(give_up())
        assert scorer.score_answer(entry, entry["answer"]).score == 1.0
        assert wait_until(lambda: not zombies_of(server))
        assert len(living_children(server)) <= 4


def test_fork_servers_that_are_killed_one_after_the_other_end_no_run(item: Item) -> None:
    entry = item("chain_sum")
    others = fork_servers()
    with Scorer(workers=1) as scorer, ThreadPoolExecutor(1) as threads:
        scored = threads.submit(scorer.score_answer, entry, entry["answer"])
        for _ in range(3):
            assert wait_until(lambda: fork_servers() - others)
            killed = fork_servers() - others
            for server in killed:
                os.kill(server, signal.SIGKILL)
            # Not until there is none: the next one may have started already.
            assert wait_until(lambda killed=killed: not fork_servers() & killed)
        assert scored.result().score == 1.0


def test_a_scorer_left_open_does_not_keep_its_program_from_ending(item: Item) -> None:
    done = run_command(*open_scorer("left_open", item("coin_flip")))
    assert wait_until(lambda: not is_alive(int(done.stdout)))
