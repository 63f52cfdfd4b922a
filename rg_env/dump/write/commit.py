"""Commits records to the files of a run: text and ledger line, or neither.

Invariant: a group's ledger line is its commit record. The text is written before it; if either write fails, both are
rolled back and retried later. So no group is incomplete, and none is there twice.

Not covered: data lost in a power failure, except as `fsync` says.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loguru import logger

from rg_env.dump.codec import group_lines, to_line
from rg_env.dump.lock import RunLock
from rg_env.dump.schema import FileKind, GroupRecord, LedgerRecord, NotKept, TrainedRecord
from rg_env.dump.write.batch import Batch, Fsync, Savepoint
from rg_env.dump.write.compress import compress, plain_batches
from rg_env.dump.write.queue import Submission
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

    lines: dict[FileKind, list[bytes]] = field(default_factory=dict)
    records: int = 0
    fates: list[NotKept | None] = field(default_factory=list)


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
        self._compressing = compressing
        self._plain = deque(plain)
        self.lost: set[str] = set()
        """The groups that were dropped: what they were trained on is not recorded either."""
        self._fates: Counter[NotKept | None] = Counter()

    def commit(self, job: Submission) -> None:
        """Write the first records of a job, up to the one that fills a batch, and remove them from it.

        Raises:
            OSError, DumpError: the disk refuses; nothing is written, try again later.
        """
        if not self._lock.in_place():
            lock, self._lock = self._lock, RunLock(self._folder, self._run_id)
            lock.release()
        marks: dict[FileKind, Savepoint] = {}
        try:
            part = self._next_slice(job, marks)
            for kind in sorted(marks, key=list(FileKind).index):  # the ledger is last
                if lines := part.lines.get(kind):
                    self._batches[kind].append(lines)
                    if self._fsync is Fsync.GROUP:
                        self._batches[kind].sync()
                else:
                    self._batches[kind].roll_back(marks[kind])  # no file stays empty
        except BaseException:
            for kind, mark in marks.items():
                self._batches[kind].roll_back(mark)
            raise
        for _ in range(part.records):
            job.records.popleft()
        self._fates.update(part.fates)
        for kind, mark in marks.items():
            batch = self._batches[kind]
            if kind.holds_text and batch.lines // PROGRESS_EVERY > mark.lines // PROGRESS_EVERY:
                logger.debug("dump: {}/{} groups toward {}", batch.lines, batch.limit, batch.path.name)
            if batch.is_full:
                self._try_to_finish(batch)

    def compress_one(self) -> bool:
        """Compress a finished batch, if one is left; returns whether there may be more. A failure leaves it plain."""
        if self._plain:
            path = self._plain.popleft()
            try:
                compress(path)
            except Exception as error:
                logger.warning("dump: {} stays uncompressed ({})", path.name, error)
        return bool(self._plain)

    def close(self) -> None:
        """Finish the last batches and release the run's lock."""
        for batch in self._batches.values():
            self._try_to_finish(batch)
        while self.compress_one():
            pass
        self._lock.release()
        if self._fates and not self._fates[None]:
            reasons = "; ".join(f"{count} because {self._policy.why(reason)}" for reason, count in self._fates.items())
            logger.info("dump: the text of no group was kept, only the ledger: {}", reasons)

    def _next_slice(self, job: Submission, marks: dict[FileKind, Savepoint]) -> _Slice:
        """The lines of the next records. Makes the batches that take them ready, and adds their states to `marks`."""
        part = _Slice()
        ends: dict[FileKind, int] = {}
        full = False

        def add(kind: FileKind, line: bytes) -> None:
            nonlocal full
            lines = part.lines.setdefault(kind, [])
            lines.append(line)
            ends[kind] += len(line)
            full = full or len(lines) + marks[kind].lines >= self._batches[kind].limit

        def ready(*kinds: FileKind) -> None:
            for kind in kinds:
                if kind not in marks:
                    marks[kind] = self._ready(self._batches[kind])
                    ends[kind] = marks[kind].size

        while part.records < len(job.records):
            record = job.records[part.records]
            try:
                if isinstance(record, TrainedRecord) and record.group_id in self.lost:
                    part.records += 1
                elif not isinstance(record, GroupRecord):
                    kind = FileKind.of(record)
                    line = to_line(record)
                    ready(kind)
                    add(kind, line)
                    part.records += 1
                else:
                    text_kind, reason = route(record, self._policy)
                    if text_kind is None:
                        ledger = to_line(LedgerRecord.of(record, None, reason))
                        ready(FileKind.LEDGER)
                    else:
                        ready(text_kind, FileKind.LEDGER)
                        place = self._batches[text_kind].number, ends[text_kind]
                        text, ledger = group_lines(record, text_kind, place)
                        add(text_kind, text)
                    add(FileKind.LEDGER, ledger)
                    part.fates.append(reason)
                    part.records += 1
            except (OSError, DumpError):
                raise
            except Exception as error:  # not a disk error: drop this record, write the others
                logger.opt(exception=error).error("dump: 1 record dropped, it cannot be written as JSON")
                if isinstance(record, GroupRecord):
                    self.lost.add(record.group_id)
                job.dropped += 1
                del job.records[part.records]
            if full:
                break
        return part

    def _ready(self, batch: Batch) -> Savepoint:
        """The state of a batch that takes lines now."""
        name = batch.path.name
        if lost := batch.check():
            logger.error("dump: {} was removed or moved while being written, with {} lines; starting anew", name, lost)
        if batch.is_full:  # finishing it failed earlier
            self._finish(batch)
        batch.prepare()
        return batch.mark()

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
        if self._compressing:
            self._plain.append(final)
