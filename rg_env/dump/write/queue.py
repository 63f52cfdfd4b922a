"""A queue of submitted records, and the thread that writes them to disk.

Invariants:
- Records are written in the order of submission, and removed from their submission once they are on disk.
- An error while writing never ends the thread: the records are kept and retried.
- The waiting records are bounded. Whoever submits waits for room while the disk works, however slowly; while it returns
  errors, what goes beyond the bound is dropped and counted.
- Lock-free between threads, so that a signal handler may call `close` at any moment.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from loguru import logger

from rg_env.dump.schema import GroupRecord, TrainedRecord
from rg_env.output import counted

Writable = GroupRecord | TrainedRecord

RETRY_SECONDS = 5.0
"""Interval between retries after a disk error, while nothing new is submitted."""


@dataclass(slots=True, eq=False)
class Submission:
    """Records that were submitted together.

    Attributes:
        records: those that are not on disk yet, in order.
        size: of all its records, in bytes.
        dropped: number of records that could not be written.
        on_disk: the result, for the submitter.
    """

    records: deque[Writable]
    size: int
    dropped: int = 0
    on_disk: Future[bool] = field(default_factory=Future)

    def answer(self, result: bool) -> None:
        """Set the result, unless it is set already."""
        if not self.on_disk.done():
            self.on_disk.set_result(result)


class WriteQueue:
    """A queue and the thread behind it.

    Args:
        name: of the thread.
        commit: writes the first records of a submission and removes them from it, or raises; called in the thread until
            the submission is empty.
        finish: called in the thread after the last submission.
        max_bytes: bound of what waits.
    """

    def __init__(
        self,
        name: str,
        commit: Callable[[Submission], None],
        finish: Callable[[], None],
        max_bytes: int,
    ) -> None:
        self._commit, self._finish = commit, finish
        self._max_bytes = max_bytes
        # Shared between threads without a lock: every operation on them is atomic.
        self._open: set[Submission] = set()
        self._dropped: list[int] = []
        self._queue: SimpleQueue[Submission | Future[None] | None] = SimpleQueue()
        self.failing = False
        """Whether the disk returned an error when it was last tried."""
        self.changed: Future[None] = Future()
        """Done, and replaced by another, whenever records got to disk or an error occurred."""
        # Used by the thread only.
        self._waiting: deque[Submission] = deque()
        self._missing_when_logged = 0
        # Used by callers only.
        self._dropped_when_logged = 0
        self.closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def missing(self) -> int:
        """Number of submitted records that are not on disk: waiting or dropped."""
        return sum(len(one.records) + one.dropped for one in list(self._open)) + self.dropped

    @property
    def dropped(self) -> int:
        """Number of records that will never be on disk."""
        return sum(self._dropped)

    def waiting(self) -> list[Writable]:
        """The submitted records that are not on disk and may still get there."""
        return [record for one in list(self._open) for record in list(one.records)]

    @property
    def waiting_bytes(self) -> int:
        return sum(one.size for one in list(self._open))

    @property
    def is_alive(self) -> bool:
        """Whether the thread is still running."""
        return self._thread.is_alive()

    def has_room(self, size: int) -> bool:
        """Whether so many bytes more may wait. A single record may be larger than the bound."""
        waiting = self.waiting_bytes
        return not waiting or waiting + size <= self._max_bytes

    def submit(self, records: Sequence[Writable], size: int) -> Future[bool]:
        """Hand over records without waiting.

        Returns:
            a future: True once all are on disk, False after an error (they are kept and retried).
        """
        submission = Submission(deque(records), size)
        if records:
            self._open.add(submission)
            self._queue.put(submission)
        else:
            submission.answer(True)
        return submission.on_disk

    def drop(self, count: int) -> Future[bool]:
        """Count records that there is no room for."""
        self._dropped.append(count)
        if self.dropped >= 2 * self._dropped_when_logged:
            self._dropped_when_logged = self.dropped
            why = "the dump is closed" if self.closed else f"{self.waiting_bytes >> 20} MiB wait for a disk that fails"
            logger.error("dump: {} dropped so far, {}; training continues", counted(self.dropped, "record"), why)
        refused: Future[bool] = Future()
        refused.set_result(False)
        return refused

    def flush(self, timeout: float) -> None:
        """Wait until everything submitted so far is on disk or has failed, at most `timeout` seconds."""
        if not self.closed:
            tried: Future[None] = Future()
            self._queue.put(tried)
            with contextlib.suppress(TimeoutError):
                tried.result(timeout)

    def close(self, timeout: float) -> None:
        """Write what waits and end the thread; wait at most `timeout` seconds. May be called again."""
        self._queue.put(None)
        self.closed = True
        self._thread.join(timeout)

    # -- the thread

    def _run(self) -> None:
        while (message := self._next_message()) is not None:
            if isinstance(message, Submission):
                self._waiting.append(message)
            self._drain()
            if isinstance(message, Future):
                message.set_result(None)
        self._drain()
        self._finish()

    def _next_message(self) -> Submission | Future[None] | None:
        while True:
            try:
                return self._queue.get(timeout=RETRY_SECONDS if self._waiting else None)
            except Empty:
                self._drain()

    def _drain(self) -> None:
        """Write waiting submissions in order until none is left or the disk refuses one."""
        try:
            while self._waiting:
                submission = self._waiting[0]
                while submission.records:
                    self._commit(submission)
                if submission.dropped:
                    self._dropped.append(submission.dropped)
                self._open.discard(submission)
                self._waiting.popleft()
                self.failing = False
                submission.answer(not submission.dropped)
                self._tell()
        except Exception as error:  # training and this thread continue after any error
            self.failing = True
            for submission in self._waiting:
                submission.answer(False)
            self._tell()
            if (missing := self.missing) >= 2 * self._missing_when_logged:
                self._missing_when_logged = missing
                what = "dump: {} not on disk ({}); training continues, retrying"
                logger.error(what, counted(missing, "record"), error)
        else:
            if self._missing_when_logged:
                self._missing_when_logged = 0
                logger.warning("dump: writing again; {} dropped so far", counted(self.dropped, "record"))

    def _tell(self) -> None:
        before, self.changed = self.changed, Future()
        before.set_result(None)
