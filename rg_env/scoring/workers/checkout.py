"""Worker processes on loan: one thread has a worker at a time and gives it back or has it killed.

Invariants:
- At most `size` workers exist. They are forked when they are needed, or in advance by `start_another`.
- A worker that is checked out is idle and alive, as far as can be seen.
- If the fork server fails to start three times in a row, every later checkout raises the same error at once.
"""

from __future__ import annotations

import atexit
import functools
import os
import threading
from contextlib import suppress

from loguru import logger

from rg_env.errors import ScorerPoolError
from rg_env.scoring.workers.connection import WorkerConnection
from rg_env.scoring.workers.forkserver import ForkServer, ForkServerError

_START_ATTEMPTS = 3
START_SECONDS = 120.0


class WorkerPool:
    """At most `size` workers and the fork server that they are forked from. Thread-safe.

    Args:
        size: at least 1.
        memory_bytes: how far a worker may grow beyond its imports, in bytes of address space.
        cpu_seconds: CPU time that one answer may take; in [0, 2³²).
    """

    def __init__(self, size: int, memory_bytes: int, cpu_seconds: int) -> None:
        self.size = size
        self._memory_bytes = memory_bytes
        self._cpu_seconds = cpu_seconds
        self._owner = os.getpid()
        self._idle: list[WorkerConnection] = []
        self._live = 0
        self._closed = False
        self._broken: str | None = None
        self._changed = threading.Condition()
        self._server: ForkServer | None = None
        self._server_lock = threading.Lock()
        with suppress(ForkServerError):  # starts early; the first checkout tries again, and reports the error
            self._server = ForkServer(START_SECONDS)
        atexit.register(self.close)

    @property
    def closed(self) -> bool:
        return self._closed

    def check_out(self, scorer: bytes = b"") -> WorkerConnection:
        """A worker for the caller alone, to be given to `check_in`. Waits as long as all are in use.

        Args:
            scorer: an idle worker that has prepared it is preferred.

        Raises:
            ScorerPoolError: no worker can be started, or the pool was closed, or it belongs to another process.
        """
        if os.getpid() != self._owner:
            raise ScorerPoolError("this scorer pool belongs to the process that made it; make one in this process")
        while (worker := self._take_idle(scorer)) is not None:
            if worker.is_usable():
                return worker
            self.check_in(worker, keep=False)
        return self._start_worker()

    def start_another(self) -> WorkerConnection | None:
        """A new worker for the caller alone, to be given to `check_in`; None if as many as may exist do.

        Raises:
            ScorerPoolError: it cannot be started, or the pool was closed.
        """
        with self._changed:
            self._raise_if_unusable()
            if self._live == self.size:
                return None
            self._live += 1
        return self._start_worker()

    def check_in(self, worker: WorkerConnection, keep: bool) -> None:
        """Give a worker back.

        Args:
            keep: False: kill it.
        """
        if not keep:
            worker.kill()
        with self._changed:
            if not keep:
                self._live -= 1
            elif self._closed:
                worker.sock.close()
            else:
                self._idle.append(worker)
            self._changed.notify()

    def pause(self, seconds: float) -> None:
        """Wait, but no longer than until the pool is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed, seconds)

    def close(self) -> None:
        """End all processes. Waiting and later checkouts raise ScorerPoolError. May be called more than once."""
        if os.getpid() != self._owner:  # after a fork: the processes, and perhaps held locks, are the parent's
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

    def _take_idle(self, scorer: bytes) -> WorkerConnection | None:
        """An idle worker, or None if the caller may start one; then it is already counted in `_live`."""
        with self._changed:
            while True:
                self._raise_if_unusable()
                if self._idle:
                    ready = (worker for worker in reversed(self._idle) if scorer in worker.prepared)
                    worker = next(ready, self._idle[-1])
                    self._idle.remove(worker)
                    return worker
                if self._live < self.size:
                    self._live += 1
                    return None
                self._changed.wait()

    def _start_worker(self) -> WorkerConnection:
        """Start the worker that is already counted in `_live`."""
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

    def _fork(self) -> WorkerConnection:
        last_error = ""
        for _ in range(_START_ATTEMPTS):
            self._raise_if_unusable()
            try:
                if self._server is None:
                    self._server = ForkServer(START_SECONDS)
                sock, pid = self._server.fork(self._memory_bytes, self._cpu_seconds)
                _warn_about_missing_measures(self._server)
                return WorkerConnection(self._server, sock, pid)
            except ForkServerError as error:
                self._raise_if_unusable()
                last_error = str(error)
                logger.debug(f"scorer processes: {last_error}; restarting them")
                if self._server is not None:
                    self._server.close()
                    self._server = None
        raise ScorerPoolError(
            f"the scorer processes (python -m rg_env.scoring.workers.worker) failed to start {_START_ATTEMPTS} times "
            f"in a row; the last error: {last_error}"
        )

    def _raise_if_unusable(self) -> None:
        if self._closed:
            raise ScorerPoolError("the scorer pool is closed")
        if self._broken is not None:
            raise ScorerPoolError(self._broken)


def _warn_about_missing_measures(server: ForkServer) -> None:
    measures = server.measures()
    if unknown := {measure.why_not for measure in measures if measure.active is None}:
        _warn_once(f"the sandbox of the scorer processes could not be tried ({'; '.join(unknown)}); run rg-env audit")
    if missing := [f"{measure.name} ({measure.why_not})" for measure in measures if measure.active is False]:
        _warn_once(f"scorer processes run without: {'; '.join(missing)}; docs/security.md explains the risk")


@functools.cache
def _warn_once(text: str) -> None:
    logger.warning("{}", text)
