"""Worker processes that score answers, for any number of threads of one process.

Invariants:
- A worker belongs to one thread at a time, and goes back to the pool only after a complete, well-formed reply to a job
  that ran no code. In every other case it is killed, and the next job that needs one gets a new fork.
- The deadline of a job runs from the moment its worker, idle until then and ready for its task, is handed it. Waiting
  for a worker, or for one to get ready, never counts.
- What is held against an answer for good is its own doing, and not that its worker had no core to run on.
- A worker's death costs no score: the job is tried on other workers, and is CRASHED only when eight have died over it.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import math
import os
import pickle
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from loguru import logger

from rg_env.errors import ScorerPoolError
from rg_env.scoring.sandbox.sandbox import Measure
from rg_env.scoring.types import Status
from rg_env.scoring.workers.breaker import Patience
from rg_env.scoring.workers.effort import Effort
from rg_env.scoring.workers.forkserver import ForkServer, ForkServerError
from rg_env.scoring.workers.protocol import MAX_REPLY_BYTES, Form, ProtocolError, decode_reply, recv_frame, send_frame

_START_ATTEMPTS = 3
_DEATHS_OVER_A_JOB = 8
"""A death may be another's doing (the OOM killer's): a retry takes milliseconds, a false 0 is for ever."""
_DEATHS_BEFORE_A_JOB = 20
_START_SECONDS = 120.0
_PREPARE_SECONDS = 30.0
_JOBS_PER_WORKER = 10_000
"""After these a worker is replaced: bounds what leaks, and how many (task, options) it holds."""


@dataclass(frozen=True, slots=True)
class Job:
    """One answer to be scored. `runs_code`: the scorer evaluates it, so its worker is not used again."""

    task: str
    scorer: bytes
    """Pickled (task, options): what to score with."""
    entry: bytes
    """Pickled entry."""
    answer: str
    runs_code: bool

    @classmethod
    def of(cls, task: str, options: Mapping[str, Any], entry: Mapping[str, Any], answer: str, runs_code: bool) -> Job:
        return cls(task, pickle.dumps((task, dict(options))), pickle.dumps(dict(entry)), answer, runs_code)

    def digest(self) -> bytes:
        parts = (self.scorer, self.entry, self.answer.encode("utf-8", "surrogatepass"))
        return hashlib.blake2b(b"".join(hashlib.blake2b(part).digest() for part in parts), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Reply:
    """The worker's word on both forms."""

    raw: Form
    tagged: Form


@dataclass(frozen=True, slots=True)
class Failure:
    """No word from a worker; `status` is TIMEOUT, CRASHED or ERROR."""

    status: Status
    detail: str


class OvertimeError(TimeoutError):
    """No score by the deadline. `starved`: because the machine had no core free for the worker."""

    def __init__(self, starved: bool) -> None:
        super().__init__()
        self.starved = starved


@dataclass(eq=False, slots=True)
class _Worker:
    server: ForkServer
    sock: socket.socket
    pid: int
    ready_for: set[bytes] = field(default_factory=set)
    jobs: int = 0
    has_job: bool = False

    def is_fit(self) -> bool:
        """A worker without a job has nothing to say: its end, or any byte, means that it is not to be trusted."""
        self.sock.settimeout(0.0)
        try:
            self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def prepare(self, scorer: bytes) -> str | None:
        """Have the worker make the scorer ready. Returns why that cannot be done, or None.

        Raises:
            TimeoutError, EOFError, OSError, ProtocolError: the worker is of no more use.
        """
        deadline = monotonic() + _PREPARE_SECONDS
        send_frame(self.sock, pickle.dumps((scorer, pickle.loads(scorer))), deadline)
        reason, _ = decode_reply(recv_frame(self.sock, MAX_REPLY_BYTES, deadline))
        if isinstance(reason, str):
            return reason
        self.ready_for.add(scorer)
        return None

    def score(self, job: Job, seconds: float) -> Reply:
        """Have the answer scored.

        Raises:
            OvertimeError, EOFError, OSError, ProtocolError: the worker is of no more use.
        """
        self.jobs += 1
        self.has_job = True
        request = pickle.dumps((job.scorer, job.entry, job.answer))
        start = monotonic()
        send_frame(self.sock, request, start + seconds)
        if self._is_silent_until(start + seconds / 2):
            effort = Effort.of(self.pid)
            try:
                payload = recv_frame(self.sock, MAX_REPLY_BYTES, start + seconds)
            except TimeoutError:
                raise OvertimeError(effort.starved_since(seconds / 2)) from None
        else:
            payload = recv_frame(self.sock, MAX_REPLY_BYTES, start + seconds)
        reply = Reply(*decode_reply(payload))
        self.has_job = False
        return reply

    def _is_silent_until(self, moment: float) -> bool:
        self.sock.settimeout(max(0.0, moment - monotonic()))
        try:
            self.sock.recv(1, socket.MSG_PEEK)
        except (TimeoutError, BlockingIOError):
            return True
        return False


class ScorerPool:
    """At most `workers` processes, made when needed, plus the fork server that they come from.

    Args:
        workers: how many answers are scored at once, at least 1.
        timeout: seconds per answer, both forms together.
        memory_mb: how far a worker may grow beyond what its imports take, in MiB of address space.
    """

    def __init__(self, workers: int = 2, timeout: float = 5.0, memory_mb: int = 1024) -> None:
        self._size = workers
        self._memory_bytes = memory_mb << 20
        self._cpu_seconds = min(math.ceil(timeout), 1 << 31)
        self._patience = Patience(timeout)
        self._owner = os.getpid()
        self._idle: list[_Worker] = []
        self._live = 0
        self._closed = False
        self._broken: str | None = None
        self._changed = threading.Condition()
        self._server: ForkServer | None = None
        self._server_lock = threading.Lock()
        with suppress(ForkServerError):  # a head start; the first job tries again, and reports
            self._server = ForkServer(_START_SECONDS)
        atexit.register(self.close)

    def run(self, job: Job) -> Reply | Failure:
        """Score one answer, waiting for a worker for as long as it takes.

        Raises:
            ScorerPoolError: no worker can be started any more, or the pool was closed.
        """
        if self._patience.knows(job.digest):
            return Failure(Status.TIMEOUT, "this answer to this question hung the scorer before")
        deaths_over_it = deaths_before = 0
        while deaths_over_it < _DEATHS_OVER_A_JOB and deaths_before < _DEATHS_BEFORE_A_JOB:
            worker = self._check_out()
            keep = False
            try:
                outcome, keep = self._ask(worker, job)
                return outcome
            except (EOFError, OSError, ProtocolError):
                if not worker.has_job:
                    deaths_before += 1
                elif worker.server.is_alive():
                    deaths_over_it += 1
                else:  # the fork server too, which takes a second to replace: hardly by chance twice
                    deaths_over_it += _DEATHS_OVER_A_JOB // 2
            finally:
                self._check_in(worker, keep)
        if deaths_over_it < _DEATHS_OVER_A_JOB:
            return Failure(Status.ERROR, f"no scorer for {job.task}: its processes died while they got ready")
        self._patience.ended(job.task)
        return Failure(Status.CRASHED, "the scorer process died over this answer, and so did those that tried again")

    def _ask(self, worker: _Worker, job: Job) -> tuple[Reply | Failure, bool]:
        """Have one worker do the job. Returns the outcome, and whether the worker may be used again.

        Raises:
            EOFError, OSError, ProtocolError: the worker died, or went mad.
        """
        if job.scorer not in worker.ready_for:
            try:
                reason = worker.prepare(job.scorer)
            except TimeoutError:
                return Failure(Status.ERROR, f"no scorer for {job.task}: not ready after {_PREPARE_SECONDS:g} s"), False
            if reason is not None:
                return Failure(Status.ERROR, f"no scorer for {job.task}: {reason}"), True
        limit = self._patience.limit(job.task)
        try:
            reply = worker.score(job, limit)
        except OvertimeError as late:
            self._patience.timed_out(job.task, None if late.starved else job.digest(), limit)
            why = ", for want of a free core" if late.starved else ""
            return Failure(Status.TIMEOUT, f"no score within {limit:g} s{why}"), False
        self._patience.ended(job.task)
        return reply, not job.runs_code and worker.jobs < _JOBS_PER_WORKER

    def close(self) -> None:
        """End all processes. Calls under way, and later ones, raise ScorerPoolError. May be called again."""
        if os.getpid() != self._owner:  # a fork of the owner must leave its processes, and perhaps held locks, alone
            return
        with self._changed:
            if self._closed:
                return
            self._closed = True
            idle, self._idle = self._idle, []
            self._changed.notify_all()
        atexit.unregister(self.close)
        for worker in idle:
            worker.sock.close()
        if (server := self._server) is not None:
            server.close()  # without the lock: this wakes the thread that holds it while it waits for a fork
        with self._server_lock:
            if self._server is not None:
                self._server.close()

    @property
    def closed(self) -> bool:
        return self._closed

    def _check_out(self) -> _Worker:
        if os.getpid() != self._owner:
            raise ScorerPoolError("this scorer pool belongs to the process that made it; make one in this process")
        while True:
            with self._changed:
                while True:
                    if self._closed:
                        raise ScorerPoolError("the scorer pool is closed")
                    if self._broken is not None:
                        raise ScorerPoolError(self._broken)
                    if self._idle or self._live < self._size:
                        break
                    self._changed.wait()
                worker = self._idle.pop() if self._idle else None
                if worker is None:
                    self._live += 1
            if worker is None:
                return self._start_worker()
            if worker.is_fit():
                return worker
            self._check_in(worker, keep=False)

    def _check_in(self, worker: _Worker, keep: bool) -> None:
        if not keep:
            worker.sock.close()
            worker.server.kill(worker.pid)
        with self._changed:
            if not keep:
                self._live -= 1
            elif self._closed:
                worker.sock.close()
            else:
                self._idle.append(worker)
            self._changed.notify()

    def _start_worker(self) -> _Worker:
        """A new worker, its place in `_live` already taken; the place is given back where that fails."""
        try:
            with self._server_lock:
                return self._fork()
        except BaseException as error:
            with self._changed:
                self._live -= 1
                if isinstance(error, ScorerPoolError):
                    self._broken = str(error)
                self._changed.notify_all()
            raise

    def _fork(self) -> _Worker:
        last_words = ""
        for _ in range(_START_ATTEMPTS):
            if self._closed or self._broken is not None:
                raise ScorerPoolError(self._broken or "the scorer pool is closed")
            try:
                if self._server is None:
                    self._server = ForkServer(_START_SECONDS)
                sock, pid = self._server.fork(self._memory_bytes, self._cpu_seconds)
                _report_once(self._server)
                return _Worker(self._server, sock, pid)
            except ForkServerError as error:
                last_words = str(error)
                logger.debug(f"scorer processes: {last_words}; starting them anew")
                if self._server is not None:
                    self._server.close()
                    self._server = None
        raise ScorerPoolError(
            f"the scorer processes (python -m rg_env.scoring.workers.worker) failed to start {_START_ATTEMPTS} times "
            f"in a row; the last time: {last_words}"
        )


def sandbox_report() -> list[Measure]:
    """What scorer processes are kept from doing on this machine, each measure tried by one that is under it.

    Starts a fork server of its own: about two seconds.

    Raises:
        ScorerPoolError: it does not start.
    """
    try:
        server = ForkServer(_START_SECONDS)
        try:
            return server.measures()
        finally:
            server.close()
    except ForkServerError as error:
        raise ScorerPoolError(f"the scorer processes fail to start: {error}") from error


def _report_once(server: ForkServer) -> None:
    missing = tuple(f"{measure.name} ({measure.why_not})" for measure in server.measures() if not measure.active)
    if missing:
        _warn_once(missing)


@functools.cache
def _warn_once(missing: tuple[str, ...]) -> None:
    logger.warning("scorer processes run without: {}; docs/security.md says what that means", "; ".join(missing))
