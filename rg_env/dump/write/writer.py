"""The writer of a run: takes groups from the event loop and writes them to disk as whole lines.

Invariants:
- A group's ledger line is its commit record: no group is incomplete, and none is there twice (`commit`).
- Groups reach the files in the order in which they were submitted (`queue`).
- Everything that is handed over gets to a disk that works, however slow it is. A disk error never raises into training.
  Records that are not on disk are counted (`missing`), bounded in memory, and logged when trouble starts, whenever
  their number has doubled, and when it ends.
- Lock-free between threads, so that a signal handler may call `close` at any moment.

Not covered: a power failure, except as `fsync` says: the operating system decides when it writes lines to the device.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Self

from loguru import logger

from rg_env.config import RGDumpConfig
from rg_env.dump.files import check_folder, list_files
from rg_env.dump.schema import GroupRecord
from rg_env.dump.write.commit import Committer
from rg_env.dump.write.queue import Writable, WriteQueue
from rg_env.dump.write.routing import DumpPolicy
from rg_env.output import counted

LOG_SECONDS = 10.0
"""Interval between two messages that the disk is waited for."""
PARTS = 8
"""A part of what is handed over is at most this fraction of what may wait, so that writing goes on while more comes."""
_OPEN: set[DumpWriter] = set()


def close_all() -> None:
    """Close every writer of this process. Safe in a signal handler and more than once; registered with `atexit`."""
    for writer in list(_OPEN):
        writer.close()


atexit.register(close_all)


class DumpWriter:
    """Writes the dump of one run into one folder.

    Args:
        folder: the dump folder; created if missing.
        run_id: the run; `claim_run` finds it.
        attempt: the run's attempt, from 1.
        policy: which groups' text is kept.
        groups_per_file: lines in a finished batch, the ledger's too.
        max_pending_bytes: how much may wait for the disk, in bytes of files, with equal texts of a group counted once.
            Whoever hands over more waits; while the disk returns errors, it is dropped and counted.
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
        max_pending_bytes: int = 256 << 20,
        fsync: bool = False,
    ) -> None:
        self.folder = Path(folder).absolute()
        self.run_id = run_id
        self.attempt = attempt
        check_folder(self.folder)
        if others := {file.run_id for file in list_files(self.folder)} - {run_id}:
            also = "{} already holds other runs ({}); `rg-env dumps` commands read them together with this one"
            logger.warning(also, self.folder, len(others))
        self._max_pending_bytes = max_pending_bytes
        committer = Committer(self.folder, run_id, policy or DumpPolicy(), groups_per_file, fsync)
        self._lost = committer.lost
        self._pid = os.getpid()
        name = f"rg-dump-{run_id}"
        self._queue = WriteQueue(name, committer.commit, committer.close, max_pending_bytes)
        _OPEN.add(self)

    @classmethod
    def from_config(cls, config: RGDumpConfig, run_id: str, attempt: int) -> Self:
        """The writer that the settings describe, in their `dump_dir`."""
        return cls(
            config.dump_dir,
            run_id,
            attempt,
            policy=DumpPolicy.from_config(config),
            groups_per_file=config.groups_per_file,
            fsync=config.dump_fsync,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def missing(self) -> int:
        """Number of submitted records that are not on disk: waiting or dropped."""
        return self._queue.missing

    def missing_groups(self) -> list[str]:
        """The ids of the groups that are not on disk: waiting or dropped."""
        return sorted({one.group_id for one in self._queue.waiting() if isinstance(one, GroupRecord)} | self._lost)

    async def write(self, groups: Sequence[GroupRecord]) -> bool:
        """Hand over groups, waiting for room if necessary, and wait until the operating system has them.

        Args:
            groups: whole groups, in order; of any size.

        Returns:
            True if they survive the end of this process. False, after a disk error, if they do not yet; they are
            still written as soon as possible, unless too much waits already. A disk error never raises.
        """
        written = []
        for part, size in self._parts(groups):
            while (changed := self._must_wait(size)) is not None:
                await asyncio.wait([asyncio.wrap_future(changed)], timeout=LOG_SECONDS)
                self._say_that_it_waits(changed)
            written.append(asyncio.wrap_future(self._hand_over(part, size)))
        pending: set[asyncio.Future[bool]] = set(written)
        while pending:
            _, pending = await asyncio.wait(pending, timeout=LOG_SECONDS)
            if pending:
                logger.warning("dump: waiting for the disk, {} MiB are to be written", self._queue.waiting_bytes >> 20)
        return all(future.result() for future in written)

    def submit(self, records: Sequence[Writable]) -> Future[bool]:
        """Hand over records of any kind. They are written after earlier submissions. Waits only if there is no room for
        the texts of groups, as `write`.

        Returns:
            a future: True once the operating system has all their lines (of a group: text and ledger line), False after
            a failure (they are kept and retried, unless the disk fails and too much waits already).
        """
        written: Future[bool] = Future()
        written.set_result(True)
        for part, size in self._parts(records):
            while (changed := self._must_wait(size)) is not None:
                with contextlib.suppress(TimeoutError):
                    changed.result(LOG_SECONDS)
                self._say_that_it_waits(changed)
            written = _both(written, self._hand_over(part, size))
        return written

    def _parts(self, records: Sequence[Writable]) -> Iterator[tuple[list[Writable], int]]:
        """The records in parts that are small compared with what may wait, and the size of each in bytes."""
        part: list[Writable] = []
        total = 0
        for record in records:
            size = _size(record)
            if part and total + size > self._max_pending_bytes // PARTS:
                yield part, total
                part, total = [], 0
            part.append(record)
            total += size
        if part:
            yield part, total

    def _must_wait(self, size: int) -> Future[None] | None:
        """What to wait for before so many bytes are handed over; None if they need not or cannot wait."""
        changed = self._queue.changed  # before the look at the room, so that no change is missed
        closed = self._queue.closed or not self._queue.is_alive
        return None if closed or self._queue.failing or self._queue.has_room(size) else changed

    def _say_that_it_waits(self, changed: Future[None]) -> None:
        if not changed.done():
            logger.warning("dump: waiting for the disk, {} MiB are to be written", self._queue.waiting_bytes >> 20)

    def _hand_over(self, part: Sequence[Writable], size: int) -> Future[bool]:
        if not self._queue.closed and self._queue.has_room(size):
            return self._queue.submit(part, size)
        self._lost.update(record.group_id for record in part if isinstance(record, GroupRecord))
        return self._queue.drop(len(part))

    def flush(self, timeout: float = 15.0) -> int:
        """Wait until everything submitted so far is on disk or has failed, at most `timeout` seconds.

        Returns:
            `missing`.
        """
        self._queue.flush(timeout)
        return self.missing

    def close(self, timeout: float = 15.0) -> int:
        """Write what is waiting, finish the last batches and release the run. May be called again.

        Args:
            timeout: maximum wait in seconds.

        Returns:
            `missing`, which is also logged unless it is 0.
        """
        if os.getpid() != self._pid:  # a forked child: the dump is its parent's
            return 0
        self._queue.close(timeout)
        if self in _OPEN:
            _OPEN.discard(self)
            if self.missing:
                late = f" after waiting {timeout:g} s" if self._queue.is_alive else ""
                dropped = f" ({self._queue.dropped} of them dropped)" if self._queue.dropped else ""
                missing = "dump: closed with {} missing from {}{}{}"
                logger.error(missing, counted(self.missing, "record"), self.folder, dropped, late)
        return self.missing


def _both(one: Future[bool], other: Future[bool]) -> Future[bool]:
    """True once both are, False once both are done and one is False."""
    result: Future[bool] = Future()

    def combine(_: Future[bool]) -> None:
        if one.done() and other.done() and not result.done():
            result.set_result(one.result() and other.result())

    one.add_done_callback(combine)
    other.add_done_callback(combine)
    return result


def _size(record: Writable) -> int:
    """About how many bytes the record takes in files, with one text (the prompt) counted once."""
    if not isinstance(record, GroupRecord):
        return 0
    texts = {id(text): text for one in record.rollouts for message in one.conversation if (text := message["content"])}
    lengths = (len(text) if text.isascii() else len(text.encode(errors="replace")) for text in texts.values())
    return 1000 + len(record.entry) + 500 * len(record.rollouts) + sum(lengths)
