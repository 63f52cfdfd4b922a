"""Scores answers in worker processes, for any number of threads of one process.

Invariants:
- A worker is used again only after a complete, well-formed reply to a job whose answer cannot call a function
  (`Job.calls_code`, which the guard decides). Otherwise it is killed. So no process in which a model's text could call
  anything scores a second answer.
- The limits of a job, on CPU time and wall time, start when an idle worker that is ready for its task gets the job.
  Waiting for a worker, or for one to become ready, never counts.
- No answer scores 0 because the machine was busy: one whose worker got less CPU time than correct answers need is tried
  again later. If that fails too, it is `starved`.
- The death of a worker costs no score: the job is tried on other workers. It is CRASHED only after eight have died, or
  after deaths that took as much wall time as the answer had CPU time.
"""

from __future__ import annotations

import math
import threading
from contextlib import closing, suppress
from time import monotonic

from rg_env.errors import ScorerPoolError
from rg_env.scoring.sandbox.sandbox import Measure
from rg_env.scoring.types import AnswerScore, Status
from rg_env.scoring.workers.breaker import Breaker, honest_seconds
from rg_env.scoring.workers.checkout import START_SECONDS, WorkerPool
from rg_env.scoring.workers.connection import PREPARE_SECONDS, Job, ScoringTimeoutError, WorkerConnection
from rg_env.scoring.workers.forkserver import ForkServer, ForkServerError
from rg_env.scoring.workers.protocol import ProtocolError

_DEATHS_DURING_A_JOB = 8
"""A worker may die for another reason, such as the OOM killer. A retry takes milliseconds, a false 0 is permanent."""
_DEATHS_BEFORE_A_JOB = 20
_WALL_FACTOR = 4.0
"""Wall time that all tries of an answer may take together, in multiples of `timeout`."""
_FIRST_TRY, _PAUSE = 0.375, 0.25
"""The share of that wall time for the first try, and for the pause after it if its worker got no core."""
_JOBS_PER_WORKER = 10_000
"""After so many jobs a worker is replaced, which bounds memory leaks and the number of scorers it holds."""


class ScorerPool:
    """At most `workers` processes, made when needed, and the fork server that they come from.

    Args:
        workers: number of answers scored at the same time, at least 1.
        timeout: CPU seconds per answer, both forms together. All tries take at most four times that in wall time.
        memory_mb: how far a worker may grow beyond its imports, in MiB of address space.
    """

    def __init__(self, workers: int = 2, timeout: float = 5.0, memory_mb: int = 1024) -> None:
        self._workers = WorkerPool(workers, memory_mb << 20, min(math.ceil(timeout), 1 << 31))
        self._breaker = Breaker(timeout)
        self._timeout = timeout

    @property
    def workers(self) -> int:
        """How many answers can be scored at once."""
        return self._workers.size

    @property
    def capacity(self) -> int:
        """The same, as `Load` needs it from each kind of pool."""
        return self.workers

    @property
    def closed(self) -> bool:
        return self._workers.closed

    def start(self) -> None:
        """Wait until a worker is ready. Not needed before `run`.

        Raises:
            ScorerPoolError: no worker can be started, or the pool was closed.
        """
        self._workers.check_in(self._workers.check_out(), keep=True)

    def run(self, job: Job) -> AnswerScore:
        """Score one answer, waiting for a worker as long as it takes.

        Raises:
            ScorerPoolError: no worker can be started, or the pool was closed.
        """
        if self._breaker.has_hung(job.digest):
            return AnswerScore.unscored(Status.TIMEOUT, "this answer to this question hung the scorer before")
        wall = _WALL_FACTOR * self._timeout
        result = self._try(job, wall * _FIRST_TRY)
        if result.starved:
            self._workers.pause(wall * _PAUSE)
            result = self._try(job, wall * (1 - _FIRST_TRY - _PAUSE))
        return result

    def _try(self, job: Job, wall_seconds: float) -> AnswerScore:
        """Score one answer, on further workers if some die, within the wall time."""
        deaths_during = deaths_before = 0
        spent = 0.0
        while deaths_during < _DEATHS_DURING_A_JOB and spent < self._timeout:
            worker = self._workers.check_out(job.scorer)
            keep = False
            try:
                result, keep = self._ask(worker, job, wall_seconds - spent)
                return result
            except (EOFError, OSError, ProtocolError):
                if worker.busy_since is None:
                    deaths_before += 1
                    if deaths_before == _DEATHS_BEFORE_A_JOB:
                        why = "its processes died while starting"
                        return AnswerScore.unscored(Status.ERROR, f"no scorer for {job.task}: {why}")
                    continue
                # If the fork server died too, it takes a second to replace: hardly by chance twice.
                deaths_during += 1 if worker.server.is_alive() else _DEATHS_DURING_A_JOB // 2
                spent += monotonic() - worker.busy_since
            finally:
                self._workers.check_in(worker, keep)
                if job.calls_code:
                    with suppress(RuntimeError):  # no more threads, or the interpreter is about to end
                        threading.Thread(target=self._prepare_another, args=(job.scorer,), daemon=True).start()
        self._breaker.finished(job.task)
        return AnswerScore.unscored(
            Status.CRASHED, "the scorer process died on this answer, and so did those that tried again"
        )

    def _prepare_another(self, scorer: bytes) -> None:
        """Have a new worker ready for the next answer, if nobody else has started it by now."""
        with suppress(ScorerPoolError):
            worker = self._workers.start_another()
            if worker is not None:
                keep = False
                try:
                    keep = worker.prepare(scorer) is None
                except (EOFError, OSError, ProtocolError):
                    pass  # the next answer gets another one
                finally:
                    self._workers.check_in(worker, keep)

    def _ask(self, worker: WorkerConnection, job: Job, wall_seconds: float) -> tuple[AnswerScore, bool]:
        """Have one worker do the job. Returns the result, and whether the worker may be used again.

        Raises:
            EOFError, OSError, ProtocolError: the worker died or broke the protocol.
        """
        try:
            reason = worker.prepare(job.scorer)
        except TimeoutError:
            why = f"no scorer for {job.task}: not ready after {PREPARE_SECONDS:g} s"
            return AnswerScore.unscored(Status.ERROR, why, starved=True), False
        if reason is not None:
            return AnswerScore.unscored(Status.ERROR, f"no scorer for {job.task}: {reason}"), True
        limit = self._breaker.limit(job.task)
        try:
            raw, tagged = worker.score(job, limit, wall_seconds)
        except ScoringTimeoutError as timeout:
            if not timeout.asleep and timeout.cpu_seconds < min(limit, honest_seconds(job.task)):
                why = f"no core was free: {timeout.cpu_seconds:.2g} s of CPU time in {wall_seconds:g} s"
                return AnswerScore.unscored(Status.TIMEOUT, why, starved=True), False
            self._breaker.timed_out(job.task, job.digest(), limit)
            return AnswerScore.unscored(Status.TIMEOUT, f"no score within {limit:g} s of CPU time"), False
        self._breaker.finished(job.task)
        return AnswerScore.of_forms(raw, tagged), not job.calls_code and worker.jobs < _JOBS_PER_WORKER

    def close(self) -> None:
        """End all processes. Running and later calls raise ScorerPoolError. May be called more than once."""
        self._workers.close()


def sandbox_report() -> list[Measure]:
    """What scorer processes cannot do on this machine. Each measure is tried by a process that is under it.

    Starts a fork server, which takes about two seconds.

    Raises:
        ScorerPoolError: it does not start.
    """
    try:
        with closing(ForkServer(START_SECONDS)) as server:
            return server.measures()
    except ForkServerError as error:
        raise ScorerPoolError(f"the scorer processes fail to start: {error}") from error
