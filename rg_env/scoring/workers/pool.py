"""Scores answers in worker processes, for any number of threads and event loops of one process.

Invariants:
- At most `size` workers exist; one caller has a worker at a time. It is used again only after a complete, well-formed
  reply, and killed otherwise, because a late reply could be taken for that to a later job.
- The limits of a job, on CPU time and wall time, start when an idle worker that is ready for its task gets the job.
  Waiting for a worker, or for one to become ready, never counts.
- No answer scores 0 because the machine was busy: one whose worker got less CPU time than its limit is `starved`.
- The death of a worker costs no score: the job is tried on other workers. It is CRASHED only after eight have died, or
  after deaths that took as much wall time as the answer had CPU time.
- If the fork server fails to start three times in a row, every later call raises the same error at once.
"""

from __future__ import annotations

import atexit
import math
import os
import pickle
import queue
import sys
import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from socket import MSG_DONTWAIT, MSG_PEEK, socket
from time import clock_gettime, monotonic
from typing import Any

from loguru import logger

from rg_env.errors import ScorerPoolError
from rg_env.scoring.types import AnswerScore, Form, Status
from rg_env.scoring.workers.fork_server import ForkServer
from rg_env.scoring.workers.protocol import ProtocolError, Waiting, read_reply, send

_TRIES = 8
"""A worker may die for another reason, such as the OOM killer. A retry takes milliseconds, a false 0 is permanent."""
_WALL_FACTOR = 4.0
"""Wall time that an answer may take, in multiples of its CPU time."""
_PREPARE_SECONDS = 30.0
_JOBS_PER_WORKER = 10_000
"""After so many jobs a worker is replaced, which bounds memory leaks and the number of scorers it holds."""
_REMEMBERED = 4096
_START_ATTEMPTS = 3
_SHORTEST_WAIT = 0.01
_CLOSED = "the scorer pool is closed"


@dataclass(frozen=True, slots=True)
class Job:
    """One answer to be scored.

    Attributes:
        scorer: pickled (task, options): what to score with.
        entry: pickled entry.
        raw, tagged: what the scorer gets for the bare and for the tagged answer.
    """

    task: str
    scorer: bytes
    entry: bytes
    raw: str
    tagged: str

    @classmethod
    def of(cls, task: str, options: Mapping[str, Any], entry: Mapping[str, Any], raw: str, tagged: str) -> Job:
        return cls(task, pickle.dumps((task, dict(options))), pickle.dumps(dict(entry)), raw, tagged)

    def digest(self) -> bytes:
        return blake2b(pickle.dumps((self.scorer, self.entry, self.raw)), digest_size=16).digest()


class _TooLateError(Exception):
    """No reply within the limits. `starved`: the worker got less CPU time than its limit, and was not asleep."""

    def __init__(self, cpu_seconds: float, starved: bool) -> None:
        super().__init__()
        self.cpu_seconds = cpu_seconds
        self.starved = starved


@dataclass(eq=False, slots=True)
class Worker:
    """One worker process and the socket to it.

    Attributes:
        prepared: the scorers that the worker has made ready.
        jobs: how many it was given.
    """

    sock: socket
    pid: int
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

    async def ask(self, request: object, cpu: float, wall: float, waiting: Waiting) -> tuple[Form, Form]:
        """The reply to a request.

        Args:
            cpu: CPU seconds that the worker may use, or that it may sleep.
            wall: seconds that it may take in any case.

        Raises:
            _TooLateError, EOFError, OSError, ProtocolError: kill the worker.
        """
        end, before, used = monotonic() + wall, self._cpu_seconds(), 0.0
        await send(self.sock, pickle.dumps(request), waiting, end)
        while not await waiting.ready(self.sock, min(end - monotonic(), max(_SHORTEST_WAIT, cpu - used))):
            used = self._cpu_seconds() - before
            asleep = self._is_asleep()
            if (asleep or used >= cpu or monotonic() >= end) and not await waiting.ready(self.sock, 0.0):
                raise _TooLateError(used, starved=used < cpu and not asleep)
        return await read_reply(self.sock, waiting)

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

    A thread, the keeper, starts the fork server and workers, and kills workers. It stays as long as the pool is open,
    because the kernel ends the fork server when the thread that started it ends.

    Args:
        size: number of answers scored at the same time, at least 1.
        timeout: CPU seconds per answer, both forms together; at most four times that in wall time.
        memory_mb: how far a worker may grow beyond its imports, in MiB of address space.
        guest: the workers have users' modules.
    """

    def __init__(self, size: int = 2, timeout: float = 5.0, memory_mb: int = 1024, guest: bool = False) -> None:
        self.size = size
        self._timeout = timeout
        self._server_options = (memory_mb << 20, math.ceil(min(timeout, 1e9)), guest)
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._idle: list[Worker] = []
        self._callers: deque[Future[Worker]] = deque()
        self._live = 0
        self._failure: str | None = None
        self._hung: dict[bytes, None] = {}
        self._server: ForkServer | None = None
        self._orders: queue.SimpleQueue[Worker | bool | None] = queue.SimpleQueue()
        """For the keeper: a worker to kill, True to start one, False to start the fork server, None to end."""
        self._orders.put(False)
        threading.Thread(target=self._keep, name="rg_env-scorer-keeper", daemon=True).start()
        atexit.register(self.close)

    @property
    def closed(self) -> bool:
        return self._failure == _CLOSED

    async def run(self, job: Job, waiting: Waiting) -> AnswerScore:
        """Score one answer, waiting for a worker as long as it takes.

        Raises:
            ScorerPoolError: no worker can be started, or the pool was closed, or it belongs to another process.
        """
        if self._hung and job.digest() in self._hung:
            return AnswerScore.unscored(Status.TIMEOUT, "this answer to this question hung the scorer before")
        spent, tries = 0.0, 0
        while tries < _TRIES and spent < self._timeout:
            worker = await self._check_out(job.scorer, waiting)
            start, keep = monotonic(), False
            try:
                if not worker.is_silent():
                    continue
                score, keep = await self._ask(worker, job, waiting)
                return score
            except (EOFError, OSError, ProtocolError):
                tries += 1
                spent += monotonic() - start
            finally:
                self._check_in(worker, keep)
        why = "the scorer process died on this answer, and so did those that tried again"
        return AnswerScore.unscored(Status.CRASHED, why)

    async def _ask(self, worker: Worker, job: Job, waiting: Waiting) -> tuple[AnswerScore, bool]:
        """Have one worker do the job. Returns the result, and whether the worker may be used again."""
        try:
            if job.scorer not in worker.prepared:
                made = (job.scorer, pickle.loads(job.scorer))
                reason, _ = await worker.ask(made, math.inf, _PREPARE_SECONDS, waiting)
                if isinstance(reason, str):
                    return AnswerScore.unscored(Status.ERROR, f"no scorer for {job.task}: {reason}"), True
                worker.prepared.add(job.scorer)
            worker.jobs += 1
            request = (job.scorer, job.entry, job.raw, job.tagged)
            raw, tagged = await worker.ask(request, self._timeout, _WALL_FACTOR * self._timeout, waiting)
        except _TooLateError as late:
            if late.starved:
                why = f"no core was free: the scorer got {late.cpu_seconds:.2g} s of CPU time"
                return AnswerScore.unscored(Status.TIMEOUT, why, starved=True), False
            with self._lock:
                self._hung[job.digest()] = None
                if len(self._hung) > _REMEMBERED:
                    del self._hung[next(iter(self._hung))]
            return AnswerScore.unscored(Status.TIMEOUT, f"no score within {self._timeout:g} s of CPU time"), False
        return AnswerScore.of_forms(raw, tagged), worker.jobs < _JOBS_PER_WORKER

    async def _check_out(self, scorer: bytes, waiting: Waiting) -> Worker:
        """A worker for the caller alone, one that has prepared the scorer if any is idle."""
        if os.getpid() != self._owner:
            raise ScorerPoolError("this scorer pool belongs to the process that made it; make one in this process")
        with self._lock:
            if self._failure is not None:
                raise ScorerPoolError(self._failure)
            if self._idle:
                worker = next((worker for worker in reversed(self._idle) if scorer in worker.prepared), self._idle[-1])
                self._idle.remove(worker)
                return worker
            caller: Future[Worker] = Future()
            self._callers.append(caller)
            if self._live < self.size:
                self._live += 1
                self._orders.put(True)
        try:
            return await waiting.result(caller)
        except BaseException:
            if not caller.cancel() and caller.exception() is None:  # cancelled when a worker had come
                self._check_in(caller.result(), keep=True)
            raise

    def _check_in(self, worker: Worker, keep: bool) -> None:
        """Pass a worker on to the next caller, or have it killed."""
        with self._lock:
            while keep and self._callers:
                caller = self._callers.popleft()
                if caller.set_running_or_notify_cancel():
                    caller.set_result(worker)
                    return
            if keep and self._failure is None:
                self._idle.append(worker)
                return
        worker.sock.close()
        self._orders.put(worker)

    def close(self) -> None:
        """End all processes. Running and later calls raise ScorerPoolError. May be called more than once."""
        if os.getpid() != self._owner:  # after a fork: the processes, and perhaps held locks, are the parent's
            return
        atexit.unregister(self.close)
        self._fail(_CLOSED)
        if (server := self._server) is not None:
            server.close()
        self._orders.put(None)

    def _fail(self, why: str) -> None:
        with self._lock:
            self._failure = why
            callers, self._callers = self._callers, deque()
            idle, self._idle = self._idle, []
        for caller in callers:
            if caller.set_running_or_notify_cancel():
                caller.set_exception(ScorerPoolError(why))
        for worker in idle:
            worker.sock.close()

    def _keep(self) -> None:
        """The keeper's thread."""
        while (order := self._orders.get()) is not None:
            if isinstance(order, Worker):
                if self._server is not None:
                    self._server.kill(order.pid)
                with self._lock:
                    if not self._callers:
                        self._live -= 1
                        continue
            self._start(fork=order is not False)

    def _start(self, fork: bool) -> None:
        """Start the fork server if there is none, and a worker from it."""
        error = ""
        for _ in range(_START_ATTEMPTS):
            try:
                self._server = self._server or ForkServer(*self._server_options)
                if self._failure is not None:
                    self._server.close()
                elif fork:
                    self._check_in(Worker(*self._server.fork()), keep=True)
                return
            except (OSError, EOFError) as failure:
                if self._failure is not None:
                    return
                error = self._server.last_line(failure) if self._server else str(failure)
                logger.debug(f"scorer processes: {error}; restarting them")
                if self._server is not None:
                    self._server.close()
                    self._server = None
        self._fail(f"the scorer processes failed to start {_START_ATTEMPTS} times in a row; the last error: {error}")
