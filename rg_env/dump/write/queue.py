"""A queue of submitted jobs, and the thread that writes their records to disk.

Invariants:
- Jobs are written in the order of submission. Records are removed from their job once they are on disk.
- An error while writing never ends the thread: the records are kept and retried.
- Lock-free between threads, so that a signal handler may call `close` at any moment.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Self

from loguru import logger

from rg_env.dump.schema import GroupRecord, LevelRecord, TrainedRecord

Record = GroupRecord | TrainedRecord | LevelRecord

RETRY_SECONDS = 5.0
"""Interval between retries after a disk error, while nothing new is submitted."""


@dataclass(slots=True, eq=False)
class Job:
    """Records that were submitted together.

    Attributes:
        records: those that are not on disk yet, in order.
        size: approximate memory of all records of the job, in bytes.
        dropped: number of records that could not be written.
        on_disk: the result, for the submitter.
    """

    records: deque[Record]
    size: int
    dropped: int = 0
    on_disk: Future[bool] = field(default_factory=Future)

    @classmethod
    def of(cls, records: Iterable[Record]) -> Self:
        """A job of these records."""
        waiting = deque(records)
        return cls(waiting, sum(map(_size, waiting)))

    def drop(self, number: int) -> None:
        """Drop record `number`."""
        self.dropped += 1
        del self.records[number]

    def settle(self, result: bool) -> None:
        """Set the result, unless it is set already."""
        if not self.on_disk.done():
            self.on_disk.set_result(result)


class WriteQueue:
    """A queue of jobs and the thread behind it.

    Args:
        name: of the thread.
        commit: writes the first records of a job and removes them from it, or raises; called in the thread until the
            job is empty.
        finish: called in the thread after the last job.
        max_bytes: approximate limit for waiting jobs; jobs beyond it are dropped and counted.
    """

    def __init__(
        self, name: str, commit: Callable[[Job], None], finish: Callable[[], None], max_bytes: int = sys.maxsize
    ) -> None:
        self._commit = commit
        self._finish = finish
        self._max_bytes = max_bytes
        # Shared between threads without a lock: every operation on them is atomic.
        self._jobs: set[Job] = set()
        self._dropped: list[int] = []
        self._queue: SimpleQueue[Job | Future[None] | None] = SimpleQueue()
        # Used by the thread only.
        self._waiting: deque[Job] = deque()
        self._missing_when_logged = 0
        # Used by callers only.
        self._dropped_when_logged = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def missing(self) -> int:
        """Number of submitted records that are not on disk: waiting or dropped."""
        return sum(len(job.records) + job.dropped for job in list(self._jobs)) + sum(self._dropped)

    @property
    def is_alive(self) -> bool:
        """Whether the thread is still running."""
        return self._thread.is_alive()

    def submit(self, job: Job) -> Future[bool]:
        """Hand over a job without waiting.

        Returns:
            a future: True once all records are on disk, False after a failure (they are kept and retried, unless
            `max_bytes` is exceeded).
        """
        pending = sum(other.size for other in list(self._jobs))
        if not job.records:
            job.settle(True)
        elif self._closed or pending + job.size > self._max_bytes:
            self._dropped.append(len(job.records))
            if (dropped := sum(self._dropped)) >= 2 * self._dropped_when_logged:
                self._dropped_when_logged = dropped
                why = "the dump is closed" if self._closed else "too much is already waiting for the disk"
                logger.error("dump: {} records dropped so far, {}; training continues", dropped, why)
            job.settle(False)
        else:
            self._jobs.add(job)
            self._queue.put(job)
        return job.on_disk

    def flush(self, timeout: float) -> None:
        """Wait until everything submitted so far is on disk or has failed, at most `timeout` seconds."""
        if not self._closed:
            tried: Future[None] = Future()
            self._queue.put(tried)
            with contextlib.suppress(TimeoutError):
                tried.result(timeout)

    def close(self, timeout: float) -> None:
        """Write waiting jobs and end the thread; wait at most `timeout` seconds. May be called again."""
        self._queue.put(None)
        self._closed = True
        self._thread.join(timeout)

    # -- the thread

    def _run(self) -> None:
        while (message := self._next_message()) is not None:
            if isinstance(message, Job):
                self._waiting.append(message)
            self._drain()
            if isinstance(message, Future):
                message.set_result(None)
        self._drain()
        self._finish()

    def _next_message(self) -> Job | Future[None] | None:
        while True:
            try:
                return self._queue.get(timeout=RETRY_SECONDS if self._waiting else None)
            except Empty:
                self._drain()

    def _drain(self) -> None:
        """Write waiting jobs in order until none is left or the disk refuses one."""
        try:
            while self._waiting:
                job = self._waiting[0]
                while job.records:
                    self._commit(job)
                if job.dropped:
                    self._dropped.append(job.dropped)
                self._jobs.discard(job)
                self._waiting.popleft()
                job.settle(not job.dropped)
        except Exception as error:  # training and this thread continue after any error
            for job in self._waiting:
                job.settle(False)
            if (missing := self.missing) >= 2 * self._missing_when_logged:
                self._missing_when_logged = missing
                logger.error("dump: {} records not on disk ({}); training continues, retrying", missing, error)
        else:
            if self._missing_when_logged:
                self._missing_when_logged = 0
                logger.warning("dump: writing again; {} records dropped so far", sum(self._dropped))


def _size(record: Record) -> int:
    if not isinstance(record, GroupRecord):
        return 500
    texts = sum(sys.getsizeof(message["content"]) for rollout in record.rollouts for message in rollout.conversation)
    return 1000 + sys.getsizeof(record.entry) + 500 * len(record.rollouts) + texts
