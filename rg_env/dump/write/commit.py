"""Commits records to the files of a run: text and ledger line, or neither.

Invariant: a group's ledger line is its commit record. The text is written before it; if either write fails, both are
rolled back and retried later. So no group is incomplete, and none is there twice.

Not covered: data lost in a power failure, except as `fsync` says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from loguru import logger

from rg_env.dump.codec import group_lines, to_line
from rg_env.dump.lock import RunLock
from rg_env.dump.schema import FileKind, GroupRecord, LedgerRecord, NotKept, TrainedRecord
from rg_env.dump.write.batch import Batch, Savepoint
from rg_env.dump.write.queue import Submission
from rg_env.dump.write.resume import finish_leftovers
from rg_env.dump.write.routing import DumpPolicy, route
from rg_env.errors import DumpError

PROGRESS_EVERY = 10
"""Groups of a kind between two progress lines in the log."""


class Committer:
    """The open batches of one run, whose lock it holds until `close`. Not thread-safe.

    Args:
        folder: the dump folder, which exists.
        run_id: the run.
        policy: which groups' text is kept.
        limit: lines in a finished batch.
        fsync: whether groups survive a power failure.

    Raises:
        DumpError: another process writes this run, or what an earlier attempt left cannot be finished.
    """

    def __init__(
        self,
        folder: Path,
        run_id: str,
        policy: DumpPolicy,
        limit: int,
        fsync: bool,
    ) -> None:
        self._policy = policy
        self._fsync = fsync
        self._lock = RunLock(folder, run_id)
        try:
            finish_leftovers(folder, run_id)
            self._batches = {kind: Batch(folder, kind, run_id, limit) for kind in FileKind}
        except BaseException as error:
            self._lock.release()
            if isinstance(error, OSError):
                raise DumpError(f"cannot finish what an earlier attempt left in {folder}: {error}") from None
            raise
        self.lost: set[str] = set()
        """The groups that were dropped: what they were trained on is not recorded either."""
        self._fates: Counter[NotKept | None] = Counter()

    def commit(self, job: Submission) -> None:
        """Write the first records of a job, up to one that fills a batch, and remove them from it.

        Raises:
            OSError, DumpError: the disk refuses; nothing is written, try again later.
        """
        marks: dict[FileKind, Savepoint] = {}
        fates: list[NotKept | None] = []
        try:
            written = self._write_first(job, marks, fates)
        except BaseException:
            for kind, mark in marks.items():
                self._batches[kind].roll_back(mark)
            raise
        for _ in range(written):
            job.records.popleft()
        self._fates.update(fates)
        for kind, mark in marks.items():
            batch = self._batches[kind]
            if kind.holds_text and batch.lines // PROGRESS_EVERY > mark.lines // PROGRESS_EVERY:
                logger.debug("dump: {}/{} groups toward {}", batch.lines, batch.limit, batch.path.name)
            if batch.is_full:
                self._try_to_finish(batch)

    def close(self) -> None:
        """Finish the last batches and release the run's lock."""
        for batch in self._batches.values():
            self._try_to_finish(batch)
        self._lock.release()
        if self._fates and not self._fates[None]:
            reasons = "; ".join(f"{count} because {self._policy.why(reason)}" for reason, count in self._fates.items())
            logger.info("dump: the text of no group was kept, only the ledger: {}", reasons)

    def _write_first(self, job: Submission, marks: dict[FileKind, Savepoint], fates: list[NotKept | None]) -> int:
        """Write records until a batch is full: each text at once, the lines of the ledger together at the end.

        Args:
            marks: gets the states of the batches before.
            fates: gets, for each group, why its text is not kept; None if it is.

        Returns:
            how many records were written.
        """
        ledger: list[bytes] = []
        written = 0
        full = False
        while written < len(job.records) and not full:
            record = job.records[written]
            kind: FileKind | None = None
            try:
                if isinstance(record, GroupRecord):
                    kind, reason = route(record, self._policy)
                    if kind is None:
                        line = to_line(LedgerRecord.of(record, None, reason))
                    else:
                        text, line = group_lines(record, kind, self._ready(kind, marks).end)
                        self._batches[kind].append(text)
                    ledger.append(line)
                    fates.append(reason)
                    batch = self._ready(FileKind.LEDGER, marks)
                    full = batch.lines + len(ledger) >= batch.limit
                elif not isinstance(record, TrainedRecord) or record.group_id not in self.lost:
                    kind = FileKind.of(record)
                    line = to_line(record)
                    self._ready(kind, marks).append(line)
                full = full or (kind is not None and self._batches[kind].is_full)
                written += 1
            except (OSError, DumpError):
                raise
            except Exception as error:  # not a disk error: drop this record, write the others
                logger.opt(exception=error).error("dump: 1 record dropped, it cannot be written as JSON")
                if isinstance(record, GroupRecord):
                    self.lost.add(record.group_id)
                job.dropped += 1
                del job.records[written]
        if self._fsync:
            self._sync(kind for kind in marks if kind is not FileKind.LEDGER)
        if ledger:
            self._batches[FileKind.LEDGER].append(b"".join(ledger), len(ledger))
            if self._fsync:
                self._sync([FileKind.LEDGER])
        for kind, mark in marks.items():
            if self._batches[kind].lines == mark.lines:
                self._batches[kind].roll_back(mark)  # no file stays empty
        return written

    def _ready(self, kind: FileKind, marks: dict[FileKind, Savepoint]) -> Batch:
        """A batch that takes lines now; its state before is added to `marks`."""
        batch = self._batches[kind]
        if kind not in marks:
            name = batch.path.name
            if lost := batch.check():
                why = "dump: {} was removed or moved while being written, with {} lines; starting anew"
                logger.error(why, name, lost)
            if batch.is_full:  # finishing it failed earlier
                self._finish(batch)
            batch.prepare()
            marks[kind] = batch.mark()
        return batch

    def _sync(self, kinds: Iterable[FileKind]) -> None:
        for kind in kinds:
            self._batches[kind].sync()

    def _try_to_finish(self, batch: Batch) -> None:
        """Finish a batch. On a disk error its lines stay in the `.part` file, and it is retried later."""
        try:
            self._finish(batch)
        except OSError as error:
            logger.error("dump: {} with {} lines could not be finished ({})", batch.path.name, batch.lines, error)

    def _finish(self, batch: Batch) -> None:
        lines = batch.lines
        final = batch.finish()
        if final is None:
            return
        if batch.kind.holds_text:
            logger.info("dump: {} groups saved in {}", lines, final)
