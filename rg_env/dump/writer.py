"""The writer of a run: one thread that appends groups to files as whole lines.

- A group's ledger line is its commit record: text, then ledger line, or neither. A failed write is rolled back.
- Records reach the files in the order in which they were submitted. The caller waits until the operating system
  has them, however slow it is; a caller that is cancelled does not cancel its write.
- A disk error never raises into training: what could not be written is kept up to a bound, and tried again at every
  next write and at the end. Beyond the bound the newest groups are refused and counted.
- Lock-free between threads, so that a signal handler may call `close` at any moment.
- Only base scores decide which file gets a group's text, so that no penalty turns a solved group into a failed one.
  Atropos' two files keep their meaning, in the train phase: a success has any score strictly above the threshold,
  FAILED has none above 0. Evaluation has a separate file, so that nobody trains on it by accident.

Not covered: a power failure without `dump_fsync`.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Self

from loguru import logger

from rg_env.base.errors import DumpError, one_line
from rg_env.base.wording import counted
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump.files import RunLock, check_folder, list_files
from rg_env.dump.manifest import Attempt, end_manifest, note_in_manifest, restore_manifest
from rg_env.dump.part_file import PartFile, count_ledger_lines, finish_leftovers
from rg_env.dump.schema import (
    FileKind,
    GroupRecord,
    NotKept,
    Phase,
    Record,
    TrainedRecord,
    answered,
    is_all_wrong,
    ledger_line,
    to_line,
)
from rg_env.scoring.types import Status

LOG_SECONDS = 10.0
"""Interval between two messages that the disk is waited for."""
MAX_KEPT_BYTES = 256 << 20
"""How many bytes of memory groups may take while the disk returns errors."""
_KINDS = {kind.record: kind for kind in FileKind if not kind.holds_text}
_OPEN: set[DumpWriter] = set()


def close_all(end: str = "") -> int:
    """Close every writer of this process. Safe in a signal handler and more than once; registered with `atexit`.

    Args:
        end: how the run ended, for its manifest. Of several callers, the first one knows.

    Returns:
        number of groups that are missing from their dumps.
    """
    # A copy: `close` takes writers out of the set.
    writers = list(_OPEN)
    # The end is set first: while one writer waits for its disk, a signal handler may come in and bring another.
    for writer in writers:
        writer.end = writer.end or end
    missing = sum(writer.close() for writer in writers)
    # After all are closed: until then, their threads complete the same manifests.
    for writer in writers:
        if writer.end:
            note_in_manifest(writer.folder, writer.run_id, writer.attempt, Attempt(end=writer.end))
    return missing


atexit.register(close_all)


def route(group: GroupRecord, config: RGDumpConfig) -> tuple[FileKind | None, NotKept | None]:
    """Return the file for the group's text, or the reason why it is not kept."""
    if not group.rollouts:
        return None, NotKept.NO_ROLLOUTS
    base_scores = [rollout.base_score for rollout in answered(group.rollouts)]
    if not base_scores and all(rollout.status is Status.NO_RESPONSE for rollout in group.rollouts):
        return None, NotKept.NO_RESPONSES
    # The kind alone says which setting decides, and how the ledger names it.
    if group.phase == Phase.EVAL:
        kind = FileKind.EVAL
    elif any(score > config.rollout_save_score_threshold for score in base_scores):
        kind = FileKind.ROLLOUTS
    elif is_all_wrong(base_scores):
        kind = FileKind.FAILED
    else:
        kind = FileKind.OTHER
    if getattr(config, kind.setting):
        return kind, None
    return None, NotKept(f"{kind.setting}_off")


class DumpWriter:
    """Writes the dump of one run into one folder.

    Args:
        run_id, attempt: see `claim_run`.
        config: which groups' text is kept, how many groups a file has, and whether they are forced to disk.

    Raises:
        DumpError: the folder cannot be written, or another process writes this run.
    """

    def __init__(self, folder: str | Path, run_id: str, attempt: int, config: RGDumpConfig | None = None) -> None:
        self.folder = Path(folder).absolute()
        self.run_id = run_id
        self.attempt = attempt
        self._config = config = config or RGDumpConfig()
        check_folder(self.folder)
        if others := {file.run_id for file in list_files(self.folder)} - {run_id}:
            also = "{} already holds other runs ({}); `rg-env dumps` commands read them together with this one"
            logger.warning(also, self.folder, len(others))
        # The lock first: from here on nobody else writes this run, which `finish_leftovers` relies on.
        lock = RunLock(self.folder, run_id)
        self.locks = [lock]
        """What this process holds until the dump is closed."""
        try:
            finish_leftovers(self.folder, run_id)
            # After the leftovers, whose groups get ledger lines.
            self._ledger_lines = count_ledger_lines(self.folder, run_id)
            self._lost: set[str] = set()
            self._files = {kind: self._part_file(kind) for kind in FileKind}
        except BaseException as error:
            lock.release()
            if isinstance(error, OSError):
                raise DumpError(f"cannot finish what an earlier attempt left in {folder}: {error}") from None
            raise
        # Shared between threads without a lock: every operation on them is atomic.
        self._queue: SimpleQueue[tuple[Sequence[Record], Future[bool]] | None] = SimpleQueue()
        self._unwritten: set[str] = set()
        self._closed = False
        self.end = ""
        """How the run ended, once somebody says so."""
        # Used by the thread only.
        self._waiting: deque[Record] = deque()
        self._refused: set[str] = set()
        self._is_failing = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name=f"rg-dump-{run_id}", daemon=True)
        self._thread.start()
        # Last: only a writer whose thread runs can be closed.
        _OPEN.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def progress(self) -> str:
        """How full the two files of Atropos' are: `current files: 40/100 above the threshold, 12/100 all wrong`."""
        parts = []
        for kind, name in {FileKind.ROLLOUTS: "above the threshold", FileKind.FAILED: "all wrong"}.items():
            file = self._files[kind]
            parts.append(f"{file.lines}/{file.limit} {name}")
        return f"current files: {', '.join(parts)}"

    @property
    def is_closed(self) -> bool:
        """Whether records are refused."""
        return self._closed

    @property
    def missing(self) -> int:
        """Number of submitted groups that are not on disk."""
        return len(self._unwritten | self._lost)

    def missing_groups(self) -> list[str]:
        """Return the ids of the submitted groups that are not on disk."""
        return sorted(self._unwritten | self._lost)

    async def write(self, records: Sequence[Record]) -> bool:
        """Hand over records, and wait until the operating system has them. Says so if that takes long.

        Returns:
            True once they survive the end of this process. False after a disk error, which has been logged.
        """
        written = asyncio.wrap_future(self.submit(records))
        # Not `wait_for`, which cancels what it has waited for too long.
        while not (await asyncio.wait([written], timeout=LOG_SECONDS))[0]:
            if not self._warn_if_alive():
                return False
        return written.result()

    def write_blocking(self, records: Sequence[Record] = ()) -> bool:
        """As `write`, for callers without an event loop. Without records it waits for those that were submitted."""
        written = self.submit(records)
        while True:
            try:
                return written.result(LOG_SECONDS)
            except TimeoutError:
                if not self._warn_if_alive():
                    return False

    def submit(self, records: Sequence[Record]) -> Future[bool]:
        """Hand over records of any kind without waiting. The result is that of `write`; cancelling it has no effect."""
        written: Future[bool] = Future()
        # A running future cannot be cancelled, whatever happens to the task that waits for it.
        written.set_running_or_notify_cancel()
        # Before the thread has the records: it takes them out of the set as soon as they are written.
        self._unwritten.update(record.group_id for record in records if isinstance(record, GroupRecord))
        if self._closed:
            logger.error("dump: {} refused, the dump is closed", counted(len(records), "record"))
            written.set_result(False)
        else:
            self._queue.put((records, written))
        return written

    def close(self) -> int:
        """Write what is left, however slow the disk is, finish the files and release the run. May be called again.

        Returns:
            `missing`, which is also logged unless it is 0.
        """
        if os.getpid() != self._pid:  # a forked child: the dump is its parent's
            return 0
        # First, so that nothing more is queued behind the mark that ends the thread.
        self._closed = True
        self._queue.put(None)
        self._thread.join(LOG_SECONDS)
        while self._warn_if_alive():
            self._thread.join(LOG_SECONDS)
        # Only the first of several calls says so.
        if self.missing and self in _OPEN:
            logger.error("dump: {} missing from {}", counted(self.missing, "group"), self.folder)
        _OPEN.discard(self)
        return self.missing

    def _warn_if_alive(self) -> bool:
        """Return whether the thread is still at work; if so, say that the disk is waited for."""
        if self._thread.is_alive():
            message = "dump: waiting for the disk of {}, {} not written"
            logger.warning(message, self.folder, counted(self.missing, "group"))
        return self._thread.is_alive()

    def _part_file(self, kind: FileKind) -> PartFile:
        return PartFile(
            self.folder,
            kind,
            self.run_id,
            self._config.groups_per_file,
            fsync=self._config.dump_fsync,
            lost=self._lost,
            make_folder=self._make_folder,
        )

    # -- the thread

    def _make_folder(self) -> None:
        """Make the folder again if it was removed or renamed, with the lock and the manifest that belong there.

        Raises:
            OSError: it cannot be made. DumpError: another process writes this run there.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.locks[0].keep()
        restore_manifest(self.folder, self.run_id)

    def _run(self) -> None:
        """Write until the dump is closed, then finish its files; the lock is the last thing to go."""
        while (message := self._queue.get()) is not None:
            records, written = message
            self._waiting.extend(records)
            written.set_result(self._write_waiting())
        self._write_waiting()
        for file in self._files.values():
            self._try_to_finish(file, at_end=True)
        end_manifest(self.folder, self.run_id, self.attempt, self.missing, self._ledger_lines)
        for lock in self.locks:
            lock.release()

    def _write_waiting(self) -> bool:
        """Write what waits, in order, until the disk refuses something. Never raises."""
        try:
            # Somebody may have removed a file, or changed its length, since the last write.
            for file in self._files.values():
                file.recheck()
            # A record stays in the queue until it is written: after a disk error the same one is tried again, in order.
            while self._waiting:
                try:
                    self._put(self._waiting[0])
                except (TypeError, ValueError) as error:  # not of the disk: refuse this record, write the others
                    logger.opt(exception=error).error("dump: 1 record refused, it cannot be written as JSON")
                    if isinstance(self._waiting[0], GroupRecord):
                        self._refused.add(self._waiting[0].group_id)
                self._waiting.popleft()
            if self._config.dump_fsync:
                for file in self._files.values():
                    file.sync()
        except Exception as error:  # training and this thread continue after any error
            if not self._is_failing:
                message = "dump: {} not on disk ({}); training continues; each write is retried"
                logger.error(message, counted(self.missing, "group"), one_line(error))
            self._is_failing = True
            self._refuse_newest()
            return False
        if self._is_failing:
            logger.warning("dump: writing again; {} missing so far", counted(len(self._refused | self._lost), "group"))
        self._is_failing = False
        return True

    def _refuse_newest(self) -> None:
        """Give up the newest groups beyond what may be kept."""
        kept: deque[Record] = deque()
        size, before = 0, len(self._refused)
        for record in self._waiting:
            size += _size(record)
            # At least one is kept, however large, and all records without texts, which are small.
            if kept and size > MAX_KEPT_BYTES and isinstance(record, GroupRecord):
                self._refused.add(record.group_id)
            else:
                kept.append(record)
        self._waiting = kept
        # Said whenever the number has doubled, not for each group.
        if len(self._refused) > before and len(self._refused).bit_length() > before.bit_length():
            message = "dump: {} refused so far, the disk still fails; training continues"
            logger.error(message, counted(len(self._refused), "group"))

    def _put(self, record: Record) -> None:
        """Write a record. After an OSError nothing of it is written."""
        if isinstance(record, GroupRecord):
            self._put_group(record)
        # What was trained on a refused group is left out with it: no ledger line would explain it.
        elif not (isinstance(record, TrainedRecord) and record.group_id in self._refused):
            file = self._files[_KINDS[type(record)]]
            file.append(to_line(record))
            self._try_to_finish(file)

    def _put_group(self, group: GroupRecord) -> None:
        """Write a group's text and its ledger line, or neither."""
        kind, reason = route(group, self._config)
        ledger = self._files[FileKind.LEDGER]
        if kind is None:
            ledger.append(ledger_line(group, kind, reason or ""), group.group_id)
        else:
            # The text first: a ledger line promises that it is there.
            text, line = self._files[kind], to_line(group)
            place = text.append(line, group.group_id)
            try:
                ledger.append(ledger_line(group, kind, place=place), group.group_id)
            except BaseException:
                text.take_back(line)
                raise
            self._try_to_finish(text)
        self._try_to_finish(ledger)
        self._ledger_lines[group.attempt] += 1  # an import keeps the attempts of its source
        self._unwritten.discard(group.group_id)

    def _try_to_finish(self, file: PartFile, at_end: bool = False) -> None:
        """Finish a full file, or any at the end. On a disk error its lines stay in the `.part`, and the next line tries
        again.
        """
        if not (file.is_full or at_end):
            return
        lines = file.lines
        try:
            final = file.finish()
        except OSError as error:
            logger.error("dump: a file with {} lines could not be finished ({})", lines, error)
            return
        if final is not None and file.kind.holds_text:
            saved = f"{counted(lines, 'group')} saved in"
            # a screen has less room than a log (rg_env.terminal.reports)
            logger.bind(shown=f"{saved} {final.name}").info("dump: {} {}", saved, final)


def _size(record: Record) -> int:
    """Estimate the memory that a record takes, in bytes; a text that it has several times counts once."""
    if not isinstance(record, GroupRecord):
        return 0
    sizes: dict[int, int] = {}
    for rollout in record.rollouts:
        for message in rollout.conversation:
            for text in message.values():
                sizes[id(text)] = sys.getsizeof(text)
    return sum(sizes.values())
