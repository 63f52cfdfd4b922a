"""Commits records to the files of a run: text and ledger line, or neither.

Invariant: a group's ledger line is its commit record. The text is written before it; if either write fails, both are
rolled back and retried later. So no group is incomplete, and none is there twice.

Not covered: data lost in a power failure, except as `fsync` says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loguru import logger

from rg_env.dump.codec import group_lines, to_line
from rg_env.dump.lock import RunLock
from rg_env.dump.schema import FileKind, GroupRecord, LevelRecord, NotKept
from rg_env.dump.write.batch import Batch, Fsync
from rg_env.dump.write.compress import Compressor, plain_batches
from rg_env.dump.write.queue import Job, Record
from rg_env.dump.write.resume import finish_leftovers
from rg_env.dump.write.routing import DumpPolicy, route
from rg_env.errors import DumpError

PROGRESS_EVERY = 10
"""Groups of a kind between two progress lines in the log."""


@dataclass(slots=True)
class _Slice:
    """Consecutive records that are committed together, because no batch is full before the last of them.

    Attributes:
        lines: by kind of file, in the order of writing: a group's text before its ledger line.
        records: number of records.
        fates: of each group, why its text is not kept; None if it is.
    """

    lines: dict[FileKind, list[bytes]] = field(default_factory=lambda: {kind: [] for kind in FileKind})
    records: int = 0
    fates: list[NotKept | None] = field(default_factory=list)

    def add(self, record: Record, policy: DumpPolicy) -> None:
        """Add the record's lines.

        Raises:
            Exception: it cannot be written as JSON; the slice is unchanged.
        """
        if not isinstance(record, GroupRecord):
            self.lines[FileKind.LEVELS if isinstance(record, LevelRecord) else FileKind.TRAINED].append(to_line(record))
        else:
            kind, reason = route(record, policy)
            text, ledger = group_lines(record, kind, reason)
            if kind is not None:
                self.lines[kind].append(text)
            self.lines[FileKind.LEDGER].append(ledger)
            self.fates.append(reason)
        self.records += 1


class Committer:
    """The open batches of one run, whose lock it holds until `close`. Not thread-safe.

    Args:
        folder: the dump folder, which exists.
        run_id: the run.
        policy: which groups' text is kept.
        limits: lines in a finished batch of each kind.
        fsync: what survives a power failure.
        compressing: whether finished batches are compressed, including those that earlier attempts left plain.

    Raises:
        DumpError: another process writes this run, or what an earlier attempt left cannot be finished.
    """

    def __init__(
        self,
        folder: Path,
        run_id: str,
        policy: DumpPolicy,
        limits: Mapping[FileKind, int],
        fsync: Fsync,
        compressing: bool,
    ) -> None:
        self._folder = folder
        self._run_id = run_id
        self._policy = policy
        self._fsync = fsync
        self._lock = RunLock(folder, run_id)
        try:
            finish_leftovers(folder, run_id)
            plain = plain_batches(folder, run_id) if compressing else []
            self._batches = {kind: Batch(folder, kind, run_id, limit) for kind, limit in limits.items()}
        except BaseException as error:
            self._lock.release()
            if isinstance(error, OSError):
                raise DumpError(f"cannot finish what an earlier attempt left in {folder}: {error}") from None
            raise
        self._compressor = Compressor(plain) if compressing else None
        self._fates: Counter[NotKept | None] = Counter()

    def commit(self, job: Job) -> None:
        """Write the first records of a job, up to the one that fills a batch, and remove them from it.

        Raises:
            OSError, DumpError: the disk refuses; nothing is written, try again later.
        """
        part = self._next_slice(job)
        touched = [batch for kind, batch in self._batches.items() if part.lines[kind]]  # FileKind: the ledger is last
        if gone := {batch.path.name: lost for batch in touched if (lost := batch.check())}:
            logger.error("dump: files removed or moved while being written (with lines): {}; starting new ones", gone)
        for batch in touched:
            if batch.is_full:  # finishing it failed earlier
                self._finish(batch)
            batch.prepare()
        if not self._lock.in_place():
            lock, self._lock = self._lock, RunLock(self._folder, self._run_id)
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
        self._fates.update(part.fates)
        for batch, mark in zip(touched, marks, strict=True):
            if batch.kind.holds_text and batch.lines // PROGRESS_EVERY > mark.lines // PROGRESS_EVERY:
                logger.debug("dump: {}/{} groups toward {}", batch.lines, batch.limit, batch.path.name)
            if batch.is_full:
                self._try_to_finish(batch)

    def close(self) -> None:
        """Finish the last batches and release the run's lock."""
        for batch in self._batches.values():
            self._try_to_finish(batch)
        if self._compressor is not None:
            self._compressor.close()
        self._lock.release()
        if self._fates and not self._fates[None]:
            reasons = "; ".join(f"{count} because {self._policy.why(reason)}" for reason, count in self._fates.items())
            logger.info("dump: the text of no group was kept, only the ledger: {}", reasons)

    def _next_slice(self, job: Job) -> _Slice:
        part = _Slice()
        rooms = [(part.lines[kind], batch.room) for kind, batch in self._batches.items()]
        while part.records < len(job.records):
            try:
                part.add(job.records[part.records], self._policy)
            except Exception as error:  # not a disk error: drop this record, write the others
                logger.opt(exception=error).error("dump: 1 record dropped, it cannot be written as JSON")
                job.drop(part.records)
            if any(len(lines) >= room for lines, room in rooms):
                break
        return part

    def _try_to_finish(self, batch: Batch) -> None:
        """Finish a batch. On a disk error its lines stay in the `.part` file, and it is retried later."""
        try:
            self._finish(batch)
        except OSError as error:
            logger.error("dump: {} with {} lines could not be finished ({})", batch.path.name, batch.lines, error)

    def _finish(self, batch: Batch) -> None:
        lines = batch.lines
        if self._fsync is Fsync.BATCH:  # all files: ledger and texts belong together
            for other in self._batches.values():
                other.sync()
        final = batch.finish()
        if final is None:
            return
        if batch.kind.holds_text:
            logger.info("dump: {} groups saved in {}", lines, final)
        if self._compressor is not None:
            self._compressor.add(final)
