"""Runs jobs in worker processes, for any number of threads and event loops of one process.

Invariants:
- At most `size` workers exist; one caller has a worker at a time. It is used again only after a complete, well-formed
  reply, and killed otherwise, because a late reply could be taken for that to a later job.
- Requests are pickles, because a worker may trust the process that asks. A reply is one line of JSON that is checked
  value by value and never unpickled, because a worker may have run model output.
- The limits of a job, on CPU time and wall time, start when a worker that is ready for its target gets the job. Waiting
  for a worker, or for one to become ready, never counts.
- No answer scores 0 because the machine was busy: one whose worker got less CPU time than its limit is `starved`.
- The death of a worker costs no score: the job is tried on other workers. It is CRASHED only after eight have died, or
  after deaths that took as much wall time as the answer had CPU time.
- If the fork server fails to start three times in a row, every later call raises the same error at once.
- The processes get nothing from this one but its import paths and a short list of environment variables: no tokens.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from socket import MSG_DONTWAIT, MSG_PEEK, SHUT_RDWR, send_fds, socket, socketpair
from time import clock_gettime, monotonic

from loguru import logger

from rg_env.errors import ScorerPoolError, one_line
from rg_env.scoring.sandbox.sandbox import warn_about_missing
from rg_env.scoring.types import Status
from rg_env.scoring.workers.waiting import Waiting
from rg_env.scoring.workers.worker import LONGEST_REASON, MESSAGE

_TRIES = 8
"""A worker may die for another reason, such as the OOM killer. A retry takes milliseconds, a false 0 is permanent."""
_WALL_FACTOR = 4.0
"""Wall time that an answer may take, in multiples of its CPU time."""
_PREPARE_SECONDS, _START_SECONDS, _EXIT_SECONDS = 30.0, 120.0, 5.0
_SHORTEST_WAIT = 0.01
_JOBS_PER_WORKER = 10_000
"""After so many jobs a worker is replaced, which bounds memory leaks and the number of targets it holds."""
_REMEMBERED = 4096
_STARTS = 3
_MAX_REPLY_BYTES = 8192
_CLOSED = "the scorer pool is closed"
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class ProtocolError(Exception):
    """The worker sent something invalid: do not use it any more."""


class _TooLateError(Exception):
    """No reply within the limits. `starved`: the worker got less CPU time than its limit, and was not asleep."""

    def __init__(self, cpu_seconds: float, starved: bool) -> None:
        super().__init__()
        self.cpu_seconds = cpu_seconds
        self.starved = starved


@dataclass(frozen=True, slots=True)
class Job[T]:
    """A call of a function in a worker.

    Attributes:
        target: pickled (module, function, …), as `worker.serve_requests` takes it.
        arguments: pickled.
        check: what the worker replied, as JSON gives it → the result. It raises ProtocolError for anything else.
    """

    target: bytes
    arguments: bytes
    check: Callable[[object], T]

    def digest(self) -> bytes:
        return blake2b(pickle.dumps((self.target, self.arguments)), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a job has no result: TIMEOUT, CRASHED, or ERROR if there is no such target. `starved`: as of AnswerScore."""

    status: Status
    detail: str
    starved: bool = False


class ForkServer:
    """A running fork server, which may still be importing its modules.

    Args:
        memory_bytes: how far a worker may grow, in bytes of address space; 0: without a sandbox.
        cpu_seconds: CPU time that one answer may take.
        modules: what to import.
    """

    def __init__(self, memory_bytes: int, cpu_seconds: int, modules: Sequence[str]) -> None:
        self.has_started = False
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  (unlike a pipe, a file never blocks the writer)
        self._control, theirs = socketpair()
        with theirs:
            numbers = map(str, (theirs.fileno(), memory_bytes, cpu_seconds))
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "rg_env.scoring.workers.worker", *numbers, *modules],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                pass_fds=[theirs.fileno()],
                cwd="/",
                env=environment(),
                start_new_session=True,  # the trainer handles Ctrl-C in its terminal
            )

    def fork(self) -> Worker:
        """A new worker, whose first message is its pid. Raises OSError if the process has ended."""
        ours, theirs = socketpair()
        try:
            with theirs:
                send_fds(self._control, [MESSAGE.pack(0)], [theirs.fileno()])
        except BaseException:
            ours.close()
            raise
        return Worker(ours, self)

    def kill(self, pid: int) -> None:
        """Kill a worker and everything in its process group. Never fails."""
        with suppress(OSError):
            self._control.sendall(MESSAGE.pack(pid))

    def close(self) -> None:
        """End the process and all its workers. May be called more than once."""
        with suppress(OSError):
            self._control.shutdown(SHUT_RDWR)
        if not self.has_started:
            self._process.kill()  # it would finish its imports first
        try:
            self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def last_line(self, error: Exception) -> str:
        """The last line that the process wrote, or why it failed."""
        if isinstance(error, TimeoutError):
            return "they did not answer in time"
        self._stderr.seek(max(0, self._stderr.seek(0, os.SEEK_END) - 4096))
        lines = self._stderr.read().decode("utf-8", "replace").strip().splitlines()
        return one_line(lines[-1], LONGEST_REASON) if lines else str(error) or "they ended without an error message"


@dataclass(eq=False, slots=True)
class Worker:
    """One worker process and the socket to it.

    Attributes:
        pid: 0 until the worker has said it; no other process gets it before `ForkServer.kill`.
        prepared: the targets that the worker has made ready.
        jobs: how many it was given.
    """

    sock: socket
    server: ForkServer
    pid: int = 0
    prepared: set[bytes] = field(default_factory=set)
    jobs: int = 0

    def is_silent(self) -> bool:
        """Whether the worker is alive and silent. Without a job it has nothing to send, so any byte is forged."""
        try:
            self.sock.recv(1, MSG_PEEK | MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    async def start(self, waiting: Waiting) -> None:
        """Wait until the worker exists. Raises EOFError, OSError: there is none."""
        if not await waiting.ready(self.sock, _START_SECONDS):
            raise TimeoutError
        if len(message := self.sock.recv(MESSAGE.size, MSG_DONTWAIT)) < MESSAGE.size:
            raise EOFError
        (self.pid,) = MESSAGE.unpack(message)

    async def ask(self, request: object, cpu: float, wall: float, waiting: Waiting) -> object:
        """The reply to a request.

        Args:
            cpu: CPU seconds that the worker may use, or that it may sleep.
            wall: seconds that it may take in any case.

        Raises:
            _TooLateError, EOFError, OSError, ProtocolError: kill the worker.
        """
        end, before, used = monotonic() + wall, self._cpu_seconds(), 0.0
        await self._send(pickle.dumps(request), waiting, end)
        while not await waiting.ready(self.sock, min(end - monotonic(), max(_SHORTEST_WAIT, cpu - used))):
            used = self._cpu_seconds() - before
            asleep = self._is_asleep()
            if (asleep or used >= cpu or monotonic() >= end) and not await waiting.ready(self.sock, 0.0):
                raise _TooLateError(used, starved=used < cpu and not asleep)
        return self._receive()

    async def _send(self, request: bytes, waiting: Waiting, end: float) -> None:
        """Send as much of a request as the worker takes until `end` (on the clock of `time.monotonic`)."""
        left = memoryview(request)
        while left:
            try:
                left = left[self.sock.send(left, MSG_DONTWAIT) :]
            except BlockingIOError:
                if not await waiting.ready(self.sock, end - monotonic(), to_write=True):
                    return

    def _receive(self) -> object:
        """A reply, which a worker writes at once, so that it arrives whole."""
        if not (received := self.sock.recv(_MAX_REPLY_BYTES, MSG_DONTWAIT)):
            raise EOFError
        try:
            return json.loads(received) if received.endswith(b"\n") else None
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"the reply is not JSON: {error}") from None

    def _cpu_seconds(self) -> float:
        """CPU time of the worker so far. Outside Linux it is unknown, and wall time takes its place."""
        # The clock of a process, as clock_getcpuclockid(3) returns it.
        return clock_gettime(~self.pid << 3 | 2) if sys.platform == "linux" else monotonic()

    def _is_asleep(self) -> bool:
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"
        except OSError:
            return False


class ScorerPool:
    """At most `size` workers, made when needed, and the fork server that they come from.

    Args:
        size: number of jobs that run at the same time, at least 1.
        timeout: CPU seconds per job; at most four times that in wall time.
        modules: what the workers have imported.
        memory_mb: how far a worker may grow beyond its imports, in MiB of address space; 0: without a sandbox.
    """

    def __init__(self, size: int, timeout: float, modules: Sequence[str], memory_mb: int = 1024) -> None:
        self._timeout = timeout
        self._server_options = (memory_mb << 20, math.ceil(min(timeout, 1e9)), tuple(modules))
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._slots: list[Worker | None] = [None] * size
        """What nobody uses at the moment: idle workers, and Nones in place of workers that have not been started."""
        self._callers: deque[Future[Worker | None]] = deque()
        self._failure: str | None = None
        self._failed_starts = 0
        self._hung: dict[bytes, None] = {}
        warn_about_missing()
        self._server: ForkServer | None = ForkServer(*self._server_options)

    @property
    def closed(self) -> bool:
        return self._failure == _CLOSED

    async def run[T](self, job: Job[T], waiting: Waiting) -> T | Failure:
        """The result of one job, waiting for a worker as long as it takes.

        Raises:
            ScorerPoolError: no worker can be started, or the pool was closed, or it belongs to another process.
        """
        if self._hung and job.digest() in self._hung:
            return Failure(Status.TIMEOUT, "this answer to this question hung the scorer before")
        spent, tries = 0.0, 0
        while tries < _TRIES and spent < self._timeout:
            worker, keep = await self._check_out(job.target, waiting), False
            start = math.inf
            try:
                worker = worker or await self._start(waiting)
                start = monotonic()
                if worker is not None and worker.is_silent():
                    result, keep = await self._ask(worker, job, waiting)
                    return result
            except (EOFError, OSError, ProtocolError):
                tries += 1
                spent += max(0.0, monotonic() - start)
            finally:
                self._check_in(worker, keep)
        return Failure(Status.CRASHED, "the scorer process died on this answer, and so did those that tried again")

    async def _ask[T](self, worker: Worker, job: Job[T], waiting: Waiting) -> tuple[T | Failure, bool]:
        """Have one worker do the job. Returns the result, and whether the worker may be used again."""
        try:
            if job.target not in worker.prepared:
                reason = await worker.ask((job.target, None), math.inf, _PREPARE_SECONDS, waiting)
                if reason != 0.0:
                    return Failure(Status.ERROR, reason_of(reason)), True
                worker.prepared.add(job.target)
            worker.jobs += 1
            request = (job.target, job.arguments)
            reply = await worker.ask(request, self._timeout, _WALL_FACTOR * self._timeout, waiting)
        except _TooLateError as late:
            if late.starved:
                why = f"no core was free: the scorer got {late.cpu_seconds:.2g} s of CPU time"
                return Failure(Status.TIMEOUT, why, starved=True), False
            with self._lock:
                self._hung[job.digest()] = None
                if len(self._hung) > _REMEMBERED:
                    del self._hung[next(iter(self._hung))]
            return Failure(Status.TIMEOUT, f"no score within {self._timeout:g} s of CPU time"), False
        return job.check(reply), worker.jobs < _JOBS_PER_WORKER

    async def _check_out(self, target: bytes, waiting: Waiting) -> Worker | None:
        """A worker for the caller alone, one that has prepared the target if any is idle; None: start one."""
        if os.getpid() != self._owner:
            raise ScorerPoolError("this scorer pool belongs to the process that made it; make one in this process")
        with self._lock:
            if self._failure is not None:
                raise ScorerPoolError(self._failure)
            if self._slots:
                best = max(self._slots, key=lambda slot: 0 if slot is None else 1 + (target in slot.prepared))
                self._slots.remove(best)
                return best
            caller: Future[Worker | None] = Future()
            self._callers.append(caller)
        try:
            return await waiting.result(caller)
        except BaseException:
            if not caller.cancel() and caller.exception() is None:  # cancelled when a worker had come
                self._check_in(caller.result(), keep=True)
            raise

    def _check_in(self, worker: Worker | None, keep: bool) -> None:
        """Pass a worker on to the next caller; one that is not to be kept is killed, and its place passed on."""
        with self._lock:
            slot = worker if keep and self._failure is None else None
            if worker is not None and slot is None:
                worker.sock.close()
                worker.server.kill(worker.pid)
            while self._callers:
                caller = self._callers.popleft()
                if caller.set_running_or_notify_cancel():
                    caller.set_result(slot)
                    return
            self._slots.append(slot)

    async def _start(self, waiting: Waiting) -> Worker | None:
        """A new worker, from a new fork server if there is none; None if that has ended. Raises as `Worker.start`."""
        with self._lock:
            if self._failure is not None:
                return None
            try:
                self._server = server = self._server or ForkServer(*self._server_options)
                worker = server.fork()
            except OSError as error:
                self._server_failed(self._server, error)
                return None
        try:
            await worker.start(waiting)
        except BaseException as error:
            worker.sock.close()
            if not isinstance(error, TimeoutError):  # somebody ended this worker, or `fork` will say what happened
                raise
            with self._lock:
                self._server_failed(server, error)
            return None
        server.has_started = True
        self._failed_starts = 0
        return worker

    def _server_failed(self, server: ForkServer | None, error: Exception) -> None:
        """Count a failed start and make room for the next one, once for all callers who noticed. Needs the lock."""
        if self._failure is not None or server is not self._server:
            return
        why = str(error) if server is None else server.last_line(error)
        logger.debug(f"scorer processes: {why}; restarting them")
        self._server = None
        if server is not None:
            server.close()
        self._failed_starts += 1
        if self._failed_starts == _STARTS:
            self._fail(f"the scorer processes failed to start {_STARTS} times in a row; the last error: {why}")

    def close(self) -> None:
        """End all processes. Running and later calls raise ScorerPoolError. May be called more than once."""
        if os.getpid() != self._owner:  # after a fork: the processes, and perhaps held locks, are the parent's
            return
        with self._lock:
            self._fail(_CLOSED)
            server, self._server = self._server, None
        if server is not None:
            server.close()

    def _fail(self, why: str) -> None:
        """Raise in all callers from now on. Needs the lock."""
        self._failure = why
        for slot in self._slots:
            if slot is not None:
                slot.sock.close()
        self._slots.clear()
        while self._callers:
            caller = self._callers.popleft()
            if caller.set_running_or_notify_cancel():
                caller.set_exception(ScorerPoolError(why))


def reason_of(value: object) -> str:
    """A text that a worker sent, as one line of bounded length. Raises ProtocolError if it is none."""
    if not isinstance(value, str):
        raise ProtocolError("neither a number nor a reason")
    return one_line(value, LONGEST_REASON) or "no reason given"


def environment() -> dict[str, str]:
    """The environment variables of the scorer processes."""
    return {name: os.environ[name] for name in _INHERITED if name in os.environ} | {
        "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path),  # noqa: PTH100
        "PYTHONHASHSEED": "0",  # makes scores that depend on the order of a set reproducible
        "OMP_NUM_THREADS": "1",  # a process that forks must have no threads, and the cores are for training
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "MPLBACKEND": "agg",
    }
