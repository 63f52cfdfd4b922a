"""Makes the rows of batches in other processes, or in a background thread of this one.

Invariants:
- A row is a pure function of its draw, so it does not matter where or how often it is made, and no row is lost: if a
  process dies or fails, the row is made again.
- Processes are started once and end with this one, however it ends.

Not covered: a generator that never returns blocks the batch that its row belongs to.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from loguru import logger

from rg_env.errors import describe
from rg_env.processes import die_with_parent
from rg_env.user_code import import_inherited

Make = Callable[[Any], Any]
"""Makes the row of a draw. Pure; can be pickled if there are worker processes."""

_TRIES = 3
"""Processes that may die over the same row before the run ends."""


class RowMaker:
    """Makes rows in the order in which they are submitted.

    Args:
        make: makes a row.
        workers: number of processes; 0: one thread of this process.
    """

    def __init__(self, make: Make, workers: int) -> None:
        self._make = make
        self._own = threading.local()
        self._starting = threading.Lock()
        self._workers: set[_Worker] = set()
        self._closed = False
        self._threads = ThreadPoolExecutor(max(1, workers), thread_name_prefix="rg-rows")
        self._job = self._in_worker if workers else make

    def submit(self, draws: Iterable[Any]) -> list[Future[Any]]:
        """Start to make rows.

        Returns:
            the row of each draw. A future raises what `make` raises, or RuntimeError if every process that tried died.
        """
        return [self._threads.submit(self._job, draw) for draw in draws]

    def close(self) -> None:
        """End all processes and drop the rows that are not made yet. May be called again."""
        self._closed = True
        for worker in list(self._workers):
            worker.kill()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _in_worker(self, draw: Any) -> Any:
        """Have the process of this thread make a row."""
        for _ in range(_TRIES):
            worker = self._worker()
            try:
                row, error = worker.ask(draw)
            except (EOFError, OSError):
                self._workers.discard(worker)
                self._own.worker = None
                if self._closed:
                    raise CancelledError from None
                logger.warning("a dataloader worker died (exit code {}); making {} again", worker.kill(), draw)
                continue
            if error is None:
                return row
            logger.warning("a dataloader worker failed ({}); making {} in the trainer", error, draw)
            return self._make(draw)
        raise RuntimeError(f"{_TRIES} dataloader workers died over {draw}")

    def _worker(self) -> _Worker:
        worker: _Worker | None = getattr(self._own, "worker", None)
        if worker is None:
            with self._starting:
                if self._closed:
                    raise CancelledError
                worker = self._own.worker = _Worker(self._make)
                self._workers.add(worker)
        return worker


class _Worker:
    """A process that makes one row at a time."""

    def __init__(self, make: Make) -> None:
        context = get_context("spawn")  # a fork of a process with threads and Ray's connections would hang
        self._connection, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(target=_serve, args=(theirs, make), name="rg-rows", daemon=True)
        self._process.start()
        theirs.close()  # so that the death of the process is noticed

    def ask(self, draw: Any) -> tuple[Any, str | None]:
        """The row, or what went wrong.

        Raises:
            EOFError, OSError: the process died.
        """
        self._connection.send(draw)
        answer: tuple[Any, str | None] = self._connection.recv()
        return answer

    def kill(self) -> int | None:
        """End the process. Returns its exit code."""
        self._process.kill()
        self._process.join(1)
        return self._process.exitcode


def _serve(connection: Connection, make: Make) -> None:
    """Body of a worker process."""
    die_with_parent()
    import_inherited()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the trainer ends us
    while True:
        try:
            draw = connection.recv()
        except EOFError:
            return
        try:
            row, error = make(draw), None
        except Exception as raised:
            row, error = None, describe(raised)
        connection.send((row, error))
