"""Whatever happens to the caller and its processes: the next call answers or raises, `close` returns, the program ends,
and no process and no descriptor is left.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil
import pytest

from rg_env.runner import Failure, Guarded, ScorerPoolError, caller_pool, caller_worker, guarded
from rg_env.runner.caller_worker import ForkServer, Limit, Worker
from rg_env.runner.handover import wait
from rg_env.runner.server_process import Server, _may_pass
from tests.runner.processes import (
    fork_servers,
    living_children,
    servers_and_workers_of,
    wait_until,
    zombies_of,
)
from tests.runner.programs import functions

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def run_program(name: str, *arguments: str, seconds: float = 400.0) -> str:
    """What the program prints. Fails if it does not end by itself, or leaves a process."""
    command = [sys.executable, "-m", f"tests.runner.programs.{name}", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        printed, errors = program.communicate(timeout=seconds)
    assert program.returncode == 0, printed + errors
    assert wait_until(lambda: not servers_and_workers_of(program.pid))
    return printed


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Whether servers and descriptors are as many as before."""
    with guarded("math:factorial", workers=1) as first:  # the private thread and its descriptors stay
        first.score(3)
    descriptors, servers = len(os.listdir("/proc/self/fd")), fork_servers()  # noqa: PTH208
    yield
    assert wait_until(lambda: fork_servers() <= servers)
    # Fewer are right, too: those of an earlier test may have been closed a moment later.
    assert wait_until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)  # noqa: PTH208


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [500, pytest.param(20_000, marks=pytest.mark.weekly)])
def test_exceptions_of_signal_handlers_at_any_moment_stop_nothing(count: int) -> None:
    assert run_program("interrupted", str(count), seconds=3000).count("calls interrupted") == 2


@pytest.mark.parametrize(
    "how",
    [
        *("generator", "object", "closed at exit", "closed at exit, never used", "first score at exit"),
        *("thread", "open"),
    ],
)
def test_a_program_ends_while_a_scorer_is_open(how: str) -> None:
    assert "ended" in run_program("endings", how)


@pytest.mark.parametrize("limit", ["descriptors", "memory"])
def test_a_limit_that_comes_and_goes_is_an_error_of_its_moment(limit: str) -> None:
    printed = run_program("limited", limit)
    assert printed.startswith("ScorerPoolError: ")
    assert printed.endswith("recovered\n")


def give_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not answer is given up after seconds, but not the next one, which starts slowly if the
    machine is busy."""

    def start_server(*arguments: Any) -> ForkServer:
        monkeypatch.setattr(caller_worker, "START_SECONDS", 120.0)
        return ForkServer(*arguments)

    monkeypatch.setattr(caller_pool, "ForkServer", start_server)
    monkeypatch.setattr(caller_worker, "START_SECONDS", 3.0)


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("victim", ["server", "worker"])
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.usefixtures("nothing_left")
def test_a_process_that_is_killed_or_stopped_stops_nothing(
    fresh: bool, victim: str, signum: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller_worker, "_EXIT_SECONDS", 1.0)
    before = fork_servers()
    with guarded(functions.double, workers=1, timeout=1.0, fresh=fresh) as scorer:
        assert scorer.score(1).value == 2.0
        (server,) = fork_servers() - before
        assert wait_until(lambda: living_children(server))
        for pid in {server} if victim == "server" else living_children(server):
            os.kill(pid, signum)
        if victim == "server":
            give_up_soon(monkeypatch)
        results = [scorer.score(2) for _ in range(4)]
        assert results[-1].value == 4.0
        if signum == signal.SIGSTOP:  # A worker that was stopped got no core: its answer is excused.
            results = [result for result in results if not (result.status == Failure.TIMEOUT and result.excused)]
        assert {result.value for result in results} == {4.0}


@pytest.mark.parametrize("comes_back", [True, False])
@pytest.mark.usefixtures("nothing_left")
def test_a_worker_that_is_stopped_while_it_makes_ready_fails_nobody(
    comes_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by `docker pause`, or by a machine without a free core."""
    ask = Worker.ask

    async def stop_and_ask(worker: Worker, target: bytes, arguments: bytes, limit: Limit) -> object:
        if not arguments:
            os.kill(worker.pid, signal.SIGSTOP)
            if comes_back:
                asyncio.get_running_loop().call_later(2 * limit.cpu, os.kill, worker.pid, signal.SIGCONT)
                limit = limit._replace(wall=600.0)
        return await ask(worker, target, arguments, limit)

    with guarded(functions.double, workers=1, fresh=False) as scorer:
        with monkeypatch.context() as busy:
            busy.setattr(caller_pool, "_PREPARE_SECONDS", 0.2)
            busy.setattr(Worker, "ask", stop_and_ask)
            result = scorer.score(2)
        if not comes_back:
            assert (result.status, result.excused) == (Failure.TIMEOUT, True)
            assert "no core was free" in result.detail
            result = scorer.score(2)
        assert result.value == 4.0


@pytest.mark.usefixtures("nothing_left")
def test_a_server_that_is_stopped_while_it_prepares_fails_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def start_server(*arguments: Any) -> ForkServer:
        server = ForkServer(*arguments)
        os.kill(server.process.pid, signal.SIGSTOP)
        return server

    with guarded(functions.double, workers=1, examples=[((2,), 4.0)]) as scorer:
        with monkeypatch.context() as busy:
            busy.setattr(caller_pool, "ForkServer", start_server)
            busy.setattr(caller_worker, "START_SECONDS", 0.5)
            result = scorer.score(2)
        assert (result.status, result.excused) == (Failure.TIMEOUT, True)
        assert scorer.score(2).value == 4.0


@pytest.mark.usefixtures("nothing_left")
def test_a_program_that_ignores_the_end_of_children_costs_no_server() -> None:
    before, handler = fork_servers(), signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with guarded(functions.double, workers=1) as scorer:
            assert scorer.score(1).value == 2.0
            servers = fork_servers() - before
            for _ in range(20):
                assert scorer.score(1).value == 2.0
            assert fork_servers() - before == servers
    finally:
        signal.signal(signal.SIGCHLD, handler)


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.usefixtures("nothing_left")
def test_a_scorer_that_nobody_has_any_more_keeps_no_process(fresh: bool) -> None:
    """It was not closed."""
    before = fork_servers()
    scorer = guarded(functions.double, workers=1, fresh=fresh)
    assert scorer.score(1).value == 2.0
    (server,) = fork_servers() - before
    assert wait_until(lambda: len(living_children(server)) == 1)  # which waits for the next call
    del scorer
    gc.collect()
    assert wait_until(lambda: fork_servers() <= before)


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.usefixtures("nothing_left")
def test_an_idle_worker_that_is_killed_is_reaped_without_a_call(fresh: bool) -> None:
    before = fork_servers()
    with guarded(functions.double, workers=1, fresh=fresh) as scorer:
        assert scorer.score(1).value == 2.0
        (server,) = fork_servers() - before
        pool = scorer._pool
        # The used worker of a fresh pool may still be ending, and the next one not be forked yet.
        assert wait_until(lambda: {worker.pid for worker in pool._idle} == living_children(server) != set())
        (worker,) = living_children(server)
        os.kill(worker, signal.SIGKILL)
        assert wait_until(lambda: not living_children(server) and not zombies_of(server))
        assert scorer.score(2).value == 4.0


@pytest.mark.usefixtures("nothing_left")
def test_a_stopped_server_does_not_block_the_other_scorers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket fills up with commands of calls that were given up."""

    async def give_up_often() -> None:
        for _ in range(400):
            task = asyncio.ensure_future(scorer.ascore(1))
            await asyncio.sleep(0.002)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    monkeypatch.setattr(caller_worker, "_EXIT_SECONDS", 1.0)
    before = fork_servers()
    with guarded(functions.double, workers=1) as scorer, guarded("math:factorial", workers=1) as other:
        scorer.score(1)
        (server,) = fork_servers() - before
        os.kill(server, signal.SIGSTOP)
        asyncio.run(give_up_often())
        assert other.score(3).value == 6.0
        assert scorer.score(1).value == 2.0


def test_a_fork_that_fails_costs_one_attempt_and_not_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    control, _theirs = socket.socketpair()
    ours, workers = socket.socketpair()
    monkeypatch.setattr(os, "fork", fail)
    with control, _theirs, ours:
        Server(control, os.getpid(), (0, 1))._start(1, workers.detach())
        assert ours.recv(1) == b"", "the parent sees that there is no worker"


def test_code_of_others_that_ends_the_program_ends_its_job_and_not_the_private_thread() -> None:
    async def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        wait(leave())
    with guarded("math:factorial", workers=1) as scorer:
        assert scorer.score(3).value == 6.0


@pytest.mark.usefixtures("nothing_left")
def test_close_and_score_in_the_private_thread_wait_for_nothing() -> None:
    """Garbage collection may call `__del__` of an object that has a scorer in any thread."""

    async def use(scorer: Guarded) -> None:
        with pytest.raises(ScorerPoolError, match="cannot wait for itself"):
            scorer.score(3)
        scorer.close()

    scorer = guarded("math:factorial", workers=1)
    assert scorer.score(3).value == 6.0
    wait(use(scorer))
    with pytest.raises(ScorerPoolError, match="closed"):
        scorer.score(3)


class Leaving:
    """Ends the program when it is pickled."""

    def __reduce__(self) -> str:
        raise SystemExit(3)


def test_an_argument_that_cannot_be_pickled_is_an_error_of_its_caller_only() -> None:
    with guarded("math:factorial") as scorer:
        with pytest.raises(SystemExit):
            scorer.score(Leaving())
        assert scorer.score(3).value == 6.0


def test_close_ends_a_call_that_waits_for_the_first_worker() -> None:
    scorer = guarded(functions.nap, examples=[((600,), 1.0)])
    outcome: SimpleQueue[BaseException] = SimpleQueue()

    def call() -> None:
        try:
            scorer.score(0)
        except Exception as error:
            outcome.put(error)

    threading.Thread(target=call, daemon=True).start()
    while scorer._pool._server is None:
        time.sleep(0.01)
    scorer.close()
    assert isinstance(outcome.get(timeout=100), ScorerPoolError)


def test_a_server_that_prepares_ends_with_its_parent() -> None:
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.runner.programs.preparing"], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert program.stdout is not None
    server = psutil.Process(int(program.stdout.readline()))
    program.kill()
    program.wait()
    server.wait(timeout=100)


class TwoOnceThereIsMemory:
    """An argument that is 2.0 when it is unpickled, for which there is no memory the first time."""

    def __init__(self, marker: Path) -> None:
        self._marker = str(marker)

    def __reduce__(self) -> tuple[Callable[[str], float], tuple[str]]:
        return functions.no_memory_once, (self._marker,)


def test_a_preparation_for_which_there_is_no_memory_is_tried_again(tmp_path: Path) -> None:
    two = TwoOnceThereIsMemory(tmp_path / "tried")
    with guarded(functions.double, workers=1, examples=[((two,), 4.0)]) as scorer:
        assert scorer.score(3).value == 6.0


def raised(error: Exception) -> Exception:
    """What importing a module raises that raises this error."""
    wrapped = ImportError("wrapped")
    wrapped.__cause__ = error
    return wrapped


def test_what_a_moment_lacks_is_not_for_good() -> None:
    lacking = [MemoryError(), OSError(errno.EMFILE, "files"), raised(OSError(errno.EAGAIN, "processes"))]
    lacking.append(raised(OSError(errno.ESTALE, "a network file system")))
    assert [_may_pass(error) for error in lacking] == [True] * 4
    assert not any(map(_may_pass, [ImportError("none"), FileNotFoundError(errno.ENOENT, "none"), raised(ValueError())]))
