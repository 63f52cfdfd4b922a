"""The writer thread: groups go in from the event loop, whole lines come out on disk.

Invariants:
- A group's ledger line is its commit record. Its text is given to the operating system before it, and if either write
  fails, both are taken back and tried again later: no group is half there, none is there twice.
- Groups reach the files in the order in which they were submitted.
- Nothing that a disk does raises into training. What is not on disk is counted (`missing`), said when trouble
  starts, each time the count has doubled and when it ends, and bounded in memory.
- Lock-free between threads, so that a signal handler may call `close` at any moment.

It covers a power cut only as far as `fsync` says: lines are given to the operating system, which forces them to the
platter when it likes.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Self

from loguru import logger

from rg_env.dump.files import check_folder
from rg_env.dump.lock import RunLock
from rg_env.dump.schema import FileKind, GroupRecord, TrainedRecord
from rg_env.dump.write.batch import Batch, Fsync
from rg_env.dump.write.compress import Compression, Compressor, plain_batches
from rg_env.dump.write.queue import Job, Slice
from rg_env.dump.write.resume import finish_leftovers
from rg_env.dump.write.routing import DumpPolicy
from rg_env.errors import DumpError

PROGRESS_EVERY = 10
"""Groups of a kind between two lines of progress in the log."""


RETRY_SECONDS = 5.0
"""How often what a disk has refused is tried again while nothing new comes."""

_OPEN: set[DumpWriter] = set()


def close_all() -> None:
    """Close every writer of this process. Safe in a signal handler and more than once; registered with `atexit`."""
    for writer in list(_OPEN):
        writer.close()


atexit.register(close_all)


class DumpWriter:
    """Writes the record of one run into one folder.

    Args:
        folder: the dump folder; made if need be.
        run_id: the run; `claim_run` finds it.
        attempt: the run's attempt, from 1.
        policy: whose text is kept.
        groups_per_file: lines in a finished batch, the ledger's too.
        failed_groups_per_file: lines in a finished FAILED batch.
        max_pending_bytes: about how much text may wait for a disk that does not keep up; groups beyond it are dropped,
            and counted.
        fsync: what survives a power cut.
        compression: whether finished batches are compressed, those that earlier attempts left plain too.

    Raises:
        DumpError: the folder cannot be written, or another process writes this run.
    """

    def __init__(
        self,
        folder: str | Path,
        run_id: str,
        attempt: int,
        *,
        policy: DumpPolicy | None = None,
        groups_per_file: int = 100,
        failed_groups_per_file: int = 50,
        max_pending_bytes: int = 256 << 20,
        fsync: Fsync | str = Fsync.NONE,
        compression: Compression | str = Compression.NONE,
    ) -> None:
        self.folder = Path(folder).absolute()
        self.run_id = run_id
        self.attempt = attempt
        self._policy = policy or DumpPolicy()
        self._max_pending_bytes = max_pending_bytes
        self._fsync = Fsync(fsync)
        compressing = Compression(compression) is Compression.ZSTD
        check_folder(self.folder)
        self._lock = RunLock(self.folder, run_id)
        try:
            finish_leftovers(self.folder, run_id)
            plain = plain_batches(self.folder, run_id) if compressing else []
            limits = dict.fromkeys(FileKind, groups_per_file) | {FileKind.FAILED: failed_groups_per_file}
            self._batches = {kind: Batch(self.folder, kind, run_id, limit) for kind, limit in limits.items()}
        except BaseException as error:
            self._lock.release()
            if isinstance(error, OSError):
                raise DumpError(f"what an earlier attempt left in {self.folder} cannot be finished: {error}") from None
            raise
        # Shared between threads without a lock: each operation made on them is atomic.
        self._jobs: set[Job] = set()
        self._dropped: list[int] = []
        self._queue: SimpleQueue[Job | Future[None] | None] = SimpleQueue()
        # The writer thread's own.
        self._compressor = Compressor(plain) if compressing else None
        self._waiting: deque[Job] = deque()
        self._missing_when_said = 0
        # The callers' own.
        self._late = 0
        self._dropped_when_said = 0
        self._closed = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name=f"rg-dump-{run_id}", daemon=True)
        self._thread.start()
        _OPEN.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def missing(self) -> int:
        """Groups and notes of training that were submitted and are not on disk now: waiting, or dropped for good."""
        return sum(len(job.records) for job in list(self._jobs)) + sum(self._dropped)

    async def write(self, groups: Sequence[GroupRecord], timeout: float) -> bool:
        """Submit `groups` and wait until the operating system has them.

        Args:
            groups: whole groups, in order.
            timeout: seconds to wait at most.

        Returns:
            True when they survive the death of this process. False, after a loud line, when they do not yet; they are
            still written as soon as the disk allows. Never raises because of a disk.
        """
        future = asyncio.wrap_future(self.submit(groups))
        try:
            on_disk = await asyncio.wait_for(asyncio.shield(future), timeout)
        except TimeoutError:
            if not self._late:
                logger.error(
                    "dump: {} groups not on disk after {:g} s: a crash now would lose them; training goes on",
                    len(groups),
                    timeout,
                )
            self._late += len(groups)
            return False
        if self._late and on_disk:
            logger.warning("dump: the disk keeps up again; {} groups had been late", self._late)
            self._late = 0
        return on_disk

    def submit(self, groups: Sequence[GroupRecord]) -> Future[bool]:
        """Hand over `groups` without waiting.

        Returns:
            a future that becomes True once text and ledger lines of all of them have been taken by the operating
            system, False once that has failed (they are kept and tried again, unless memory is full).
        """
        return self._submit(Job.of(groups))

    def submit_trained(self, records: Sequence[TrainedRecord]) -> Future[bool]:
        """Hand over what a step was trained on, without waiting. It is written after what was submitted before.

        Returns:
            a future, as `submit`.
        """
        return self._submit(Job.of(records))

    def _submit(self, job: Job) -> Future[bool]:
        pending = sum(other.size for other in list(self._jobs))
        if not job.records:
            job.settle(True)
        elif self._closed or pending + job.size > self._max_pending_bytes:
            self._dropped.append(len(job.records))
            if (dropped := sum(self._dropped)) >= 2 * self._dropped_when_said:
                self._dropped_when_said = dropped
                why = "the record is closed" if self._closed else "too much waits for the disk already"
                logger.error("dump: {} records dropped so far, {}; training goes on", dropped, why)
            job.settle(False)
        else:
            self._jobs.add(job)
            self._queue.put(job)
        return job.on_disk

    def flush(self, timeout: float = 15.0) -> int:
        """Wait until everything submitted so far is on disk or has been refused by it, `timeout` seconds at most.

        Returns:
            `missing`.
        """
        if not self._closed:
            tried: Future[None] = Future()
            self._queue.put(tried)
            with contextlib.suppress(TimeoutError):
                tried.result(timeout)
        return self.missing

    def close(self, timeout: float = 15.0) -> int:
        """Write what waits, give the last batches their final names, let go of the run. May be called again.

        Args:
            timeout: seconds to wait at most.

        Returns:
            `missing`, which is also said in the log unless it is 0.
        """
        if os.getpid() != self._pid:  # a forked child: the record is its parent's
            return 0
        self._queue.put(None)
        self._closed = True
        self._thread.join(timeout)
        if self in _OPEN:
            _OPEN.discard(self)
            if self.missing:
                late = f" after {timeout:g} s of waiting" if self._thread.is_alive() else ""
                logger.error("dump: closed with {} records missing from {}{}", self.missing, self.folder, late)
        return self.missing

    # -- the writer thread

    def _run(self) -> None:
        while (message := self._next_message()) is not None:
            if isinstance(message, Job):
                self._waiting.append(message)
            self._drain()
            if isinstance(message, Future):
                message.set_result(None)
        self._drain()
        for batch in self._batches.values():
            self._try_to_finish(batch)
        if self._compressor is not None:
            self._compressor.close()
        self._lock.release()

    def _next_message(self) -> Job | Future[None] | None:
        while True:
            try:
                return self._queue.get(timeout=RETRY_SECONDS if self._waiting else None)
            except Empty:
                self._drain()

    def _drain(self) -> None:
        """Commit waiting records in order until none is left or the disk refuses one."""
        try:
            while self._waiting:
                job = self._waiting[0]
                while job.records:
                    self._commit(job, self._next_slice(job))
                self._waiting.popleft()
                self._jobs.discard(job)
                job.settle(job.whole)
        except Exception as error:  # whatever it is, training goes on, and so does this thread
            for job in self._waiting:
                job.settle(False)
            if self.missing >= 2 * self._missing_when_said:
                self._missing_when_said = self.missing
                logger.error(
                    "dump: {} records not on disk ({}); training goes on, they are tried again",
                    self.missing,
                    error,
                )
        else:
            if self._missing_when_said:
                self._missing_when_said = 0
                logger.warning("dump: writing again in {}; {} records dropped so far", self.folder, sum(self._dropped))

    def _next_slice(self, job: Job) -> Slice:
        part = Slice()
        while part.records < len(job.records):
            try:
                part.add(job.records[part.records], self._policy)
            except Exception as error:  # no disk's fault, and no reason to hold up the records after it
                logger.opt(exception=error).error("dump: 1 record dropped, it cannot be written as JSON")
                del job.records[part.records]
                self._dropped.append(1)
                job.whole = False
            if any(len(part.lines[kind]) >= batch.room for kind, batch in self._batches.items()):
                break
        return part

    def _commit(self, job: Job, part: Slice) -> None:
        """Write the texts, then the ledger, or neither; then close batches that are full."""
        touched = [batch for kind, batch in self._batches.items() if part.lines[kind]]  # FileKind: the ledger is last
        if gone := {batch.path.name: lost for batch in touched if (lost := batch.check())}:
            logger.error("dump: files removed or moved while they were written (with lines): {}; starting anew", gone)
        for batch in touched:
            if batch.is_full:  # it could not be finished when it became so
                self._finish(batch)
            batch.prepare()
        if not self._lock.in_place():
            lock, self._lock = self._lock, RunLock(self.folder, self.run_id)
            lock.release()
        marks = [batch.mark() for batch in touched]
        try:
            for batch in touched:
                batch.append(part.lines[batch.kind])
                if self._fsync is Fsync.GROUP:
                    batch.sync()
        except BaseException:
            for batch, mark in zip(touched, marks, strict=True):
                batch.roll_back(mark)
            raise
        for _ in range(part.records):
            job.records.popleft()
        for batch, mark in zip(touched, marks, strict=True):
            if batch.kind.holds_text and batch.lines // PROGRESS_EVERY > mark.lines // PROGRESS_EVERY:
                logger.info("dump: {}/{} groups towards {}", batch.lines, batch.limit, batch.path.name)
            if batch.is_full:
                self._try_to_finish(batch)

    def _try_to_finish(self, batch: Batch) -> None:
        """Close a batch. If the disk refuses, the lines are safe under the `.part` name and it is tried again later."""
        try:
            self._finish(batch)
        except OSError as error:
            logger.error("dump: {} with {} lines could not be finished ({})", batch.path.name, batch.lines, error)

    def _finish(self, batch: Batch) -> None:
        lines = batch.lines
        if self._fsync is Fsync.BATCH:  # all of them: a ledger without its texts is no record, nor the reverse
            for other in self._batches.values():
                other.sync()
        final = batch.finish()
        if final is None:
            return
        if batch.kind.holds_text:
            logger.info("dump: {} groups saved in {}", lines, final)
        if self._compressor is not None:
            self._compressor.add(final)
