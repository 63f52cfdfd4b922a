"""The writer of a run: one thread that appends groups to files as whole lines.

- A group's ledger line is its commit record: text, then ledger line, or neither. A failed write is rolled back.
- Records reach the files in the order in which they were submitted. Whoever hands over waits until the operating system
  has them, however slow it is; a caller that is cancelled does not cancel its write.
- A disk error never raises into training: what could not be written is kept up to a bound, and tried again at every
  next write and at the end. Beyond the bound the newest groups are refused and counted.
- Lock-free between threads, so that a signal handler may call `close` at any moment.

Not covered: a power failure without `fsync`.
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

from rg_env.config import RGDumpConfig
from rg_env.dump.files import RunLock, check_folder, list_files
from rg_env.dump.manifest import end_manifest
from rg_env.dump.part_file import PartFile, finish_leftovers
from rg_env.dump.routing import DumpPolicy, route
from rg_env.dump.schema import FileKind, GroupRecord, Record, TrainedRecord, ledger_line, to_line
from rg_env.errors import DumpError
from rg_env.output import counted

LOG_SECONDS = 10.0
"""Interval between two messages that the disk is waited for."""
_KINDS = {kind.record: kind for kind in FileKind if not kind.holds_text}
_OPEN: set[DumpWriter] = set()


def close_all() -> int:
    """Close every writer of this process. Safe in a signal handler and more than once; registered with `atexit`.

    Returns:
        number of groups that are missing from their dumps.
    """
    return sum(writer.close() for writer in list(_OPEN))


atexit.register(close_all)


class DumpWriter:
    """Writes the dump of one run into one folder.

    Args:
        run_id, attempt: see `claim_run`.
        policy: which groups' text is kept.
        groups_per_file: lines in a finished file, of every kind.
        max_kept_bytes: how much memory groups may take while the disk returns errors.
        fsync: whether groups are forced to disk, so that they survive a power failure.

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
        max_kept_bytes: int = 256 << 20,
        fsync: bool = False,
    ) -> None:
        self.folder = Path(folder).absolute()
        self.run_id = run_id
        self.attempt = attempt
        self._policy = policy or DumpPolicy()
        self._max_kept_bytes, self._fsync = max_kept_bytes, fsync
        check_folder(self.folder)
        if others := {file.run_id for file in list_files(self.folder)} - {run_id}:
            also = "{} already holds other runs ({}); `rg-env dumps` commands read them together with this one"
            logger.warning(also, self.folder, len(others))
        self._lock = RunLock(self.folder, run_id)
        try:
            finish_leftovers(self.folder, run_id)
            self._files = {kind: PartFile(self.folder, kind, run_id, groups_per_file, fsync) for kind in FileKind}
        except BaseException as error:
            self._lock.release()
            if isinstance(error, OSError):
                raise DumpError(f"cannot finish what an earlier attempt left in {folder}: {error}") from None
            raise
        # Shared between threads without a lock: every operation on them is atomic.
        self._queue: SimpleQueue[tuple[Sequence[Record], Future[bool]] | None] = SimpleQueue()
        self._unwritten: set[str] = set()
        self._closed = False
        # Used by the thread only.
        self._waiting: deque[Record] = deque()
        self._refused: set[str] = set()
        self._ready: set[FileKind] = set()
        self._is_failing = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name=f"rg-dump-{run_id}", daemon=True)
        self._thread.start()
        _OPEN.add(self)

    @classmethod
    def from_config(cls, config: RGDumpConfig, run_id: str, attempt: int) -> Self:
        """The writer that the settings describe, in their `dump_dir`."""
        policy = DumpPolicy.from_config(config)
        size, fsync = config.groups_per_file, config.dump_fsync
        return cls(config.dump_dir, run_id, attempt, policy=policy, groups_per_file=size, fsync=fsync)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def progress(self) -> str:
        """How full the two files of Atropos' are: `dump 40/100 above the threshold, 12/100 all wrong`."""
        names = {FileKind.ROLLOUTS: "above the threshold", FileKind.FAILED: "all wrong"}
        full = (f"{self._files[kind].lines}/{self._files[kind].limit} {name}" for kind, name in names.items())
        return f"dump {', '.join(full)}"

    @property
    def is_closed(self) -> bool:
        """Whether records are refused."""
        return self._closed

    @property
    def missing(self) -> int:
        """Number of submitted groups that are not on disk."""
        return len(self._unwritten)

    def missing_groups(self) -> list[str]:
        """The ids of the submitted groups that are not on disk."""
        return sorted(self._unwritten)

    async def write(self, records: Sequence[Record]) -> bool:
        """Hand over records, and wait until the operating system has them. Says so if that takes long.

        Returns:
            True once they survive the end of this process. False after a disk error, which has been logged.
        """
        written = asyncio.wrap_future(self.submit(records))
        while not (await asyncio.wait([written], timeout=LOG_SECONDS))[0]:
            if not self._is_waiting():
                return False
        return written.result()

    def write_blocking(self, records: Sequence[Record] = ()) -> bool:
        """As `write`, for callers without an event loop. Without records it waits for those that were submitted."""
        written = self.submit(records)
        while True:
            try:
                return written.result(LOG_SECONDS)
            except TimeoutError:
                if not self._is_waiting():
                    return False

    def submit(self, records: Sequence[Record]) -> Future[bool]:
        """Hand over records of any kind without waiting. The result is that of `write`; cancelling it has no effect."""
        written: Future[bool] = Future()
        written.set_running_or_notify_cancel()
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
        self._closed = True
        self._queue.put(None)
        self._thread.join(LOG_SECONDS)
        while self._is_waiting():
            self._thread.join(LOG_SECONDS)
        if self.missing and self in _OPEN:
            logger.error("dump: {} missing from {}", counted(self.missing, "group"), self.folder)
        _OPEN.discard(self)
        return self.missing

    def _is_waiting(self) -> bool:
        """Whether the thread is still at work, which is said."""
        if self._thread.is_alive():
            what = "dump: waiting for the disk of {}, {} not written"
            logger.warning(what, self.folder, counted(self.missing, "group"))
        return self._thread.is_alive()

    # -- the thread

    def _run(self) -> None:
        while (message := self._queue.get()) is not None:
            records, written = message
            self._waiting.extend(records)
            written.set_result(self._write_waiting())
        self._write_waiting()
        for file in self._files.values():
            self._try_to_finish(file)
        end_manifest(self.folder, self.run_id, self.attempt, self.missing)
        self._lock.release()

    def _write_waiting(self) -> bool:
        """Write what waits, in order, until the disk refuses something. Never raises."""
        self._ready.clear()
        try:
            while self._waiting:
                try:
                    self._put(self._waiting[0])
                except (TypeError, ValueError) as error:  # not of the disk: refuse this record, write the others
                    logger.opt(exception=error).error("dump: 1 record refused, it cannot be written as JSON")
                    self._refused.add(getattr(self._waiting[0], "group_id", ""))
                self._waiting.popleft()
            for file in self._files.values() if self._fsync else ():
                file.sync()
        except Exception as error:  # training and this thread continue after any error
            if not self._is_failing:
                what = "dump: {} not on disk ({}); training continues, and every next write tries again"
                logger.error(what, counted(self.missing, "group"), error)
            self._is_failing = True
            self._refuse_newest()
            return False
        if self._is_failing:
            logger.warning("dump: writing again; {} refused so far", counted(len(self._refused), "group"))
        self._is_failing = False
        return True

    def _refuse_newest(self) -> None:
        """Give up the newest groups beyond what may be kept."""
        kept: deque[Record] = deque()
        size, before = 0, len(self._refused)
        for record in self._waiting:
            size += _size(record)
            if kept and size > self._max_kept_bytes and isinstance(record, GroupRecord):
                self._refused.add(record.group_id)
            else:
                kept.append(record)
        self._waiting = kept
        if len(self._refused) > before and len(self._refused).bit_length() > before.bit_length():
            what = "dump: {} refused so far, the disk still fails; training continues"
            logger.error(what, counted(len(self._refused), "group"))

    def _put(self, record: Record) -> None:
        """Write a record, a group's text and its ledger line or neither. After an OSError nothing is written."""
        if isinstance(record, GroupRecord):
            kind, reason = route(record, self._policy)
            lines = [] if kind is None else [(self._files[kind], to_line(record))]
            lines.append((self._files[FileKind.LEDGER], ledger_line(record, kind, reason or "")))
        elif isinstance(record, TrainedRecord) and record.group_id in self._refused:
            return
        else:
            lines = [(self._files[_KINDS[type(record)]], to_line(record))]
        appended: list[tuple[PartFile, bytes]] = []
        try:
            for file, line in lines:
                if file.kind not in self._ready:  # it is looked at once for all that waits
                    file.prepare()
                    self._ready.add(file.kind)
                appended.append((file, line))
                file.append(line)
        except BaseException:
            for file, line in appended:
                file.drop(line)
            raise
        for file, _ in lines:
            if file.lines >= file.limit:
                self._try_to_finish(file)
        if isinstance(record, GroupRecord):
            self._unwritten.discard(record.group_id)

    def _try_to_finish(self, file: PartFile) -> None:
        """Finish a file. On a disk error its lines stay in the `.part`, and the next line tries again."""
        lines = file.lines
        self._ready.discard(file.kind)
        try:
            final = file.finish()
        except OSError as error:
            logger.error("dump: a file with {} lines could not be finished ({})", lines, error)
            return
        if final is not None and file.kind.holds_text:
            logger.info("dump: {} groups saved in {}", lines, final)


def _size(record: Record) -> int:
    """About how much memory the record takes in bytes, with a text that it has several times counted once."""
    rollouts = record.rollouts if isinstance(record, GroupRecord) else ()
    messages = (message for rollout in rollouts for message in rollout.conversation)
    return sum({id(text): sys.getsizeof(text) for message in messages for text in message.values()}.values())
