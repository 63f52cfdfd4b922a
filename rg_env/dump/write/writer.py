"""The writer of a run: groups go in from the event loop, whole lines come out on disk.

Invariants:
- A group's ledger line is its commit record: no group is half there, none is there twice (`commit`).
- Groups reach the files in the order in which they were submitted (`queue`).
- No disk error raises into training. What is not on disk is counted (`missing`), logged when trouble starts, each time
  the count has doubled and when it ends, and bounded in memory.
- Lock-free between threads, so that a signal handler may call `close` at any moment.

A power cut is covered only as far as `fsync` says: lines are given to the operating system, which writes them to the
device when it likes.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Self

from loguru import logger

from rg_env.dump.files import check_folder
from rg_env.dump.schema import FileKind, GroupRecord, TrainedRecord
from rg_env.dump.write.batch import Fsync
from rg_env.dump.write.commit import Committer
from rg_env.dump.write.compress import Compression
from rg_env.dump.write.queue import Job, WriteQueue
from rg_env.dump.write.routing import DumpPolicy

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
        policy: whose text is kept.
        groups_per_file: lines in a finished batch, the ledger's too.
        failed_groups_per_file: lines in a finished FAILED batch.
        max_pending_bytes: about how much text may wait for a disk that does not keep up; groups beyond it are dropped,
            and counted.
        fsync: what survives a power cut.
        compression: whether finished batches are compressed, including those that earlier attempts left plain.

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
        limits = dict.fromkeys(FileKind, groups_per_file) | {FileKind.FAILED: failed_groups_per_file}
        compressing = Compression(compression) is Compression.ZSTD
        check_folder(self.folder)
        committer = Committer(self.folder, run_id, policy or DumpPolicy(), limits, Fsync(fsync), compressing)
        self._late = 0
        self._pid = os.getpid()
        self._queue = WriteQueue(f"rg-dump-{run_id}", committer.commit, committer.close, max_pending_bytes)
        _OPEN.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def missing(self) -> int:
        """Groups and training records that were submitted and are not on disk now: waiting, or dropped for good."""
        return self._queue.missing

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
                    "dump: {} groups not on disk after {:g} s: a crash now would lose them; training continues",
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
        return self._queue.submit(Job.of(groups))

    def submit_trained(self, records: Sequence[TrainedRecord]) -> Future[bool]:
        """Hand over what a step was trained on, without waiting. It is written after what was submitted before.

        Returns:
            a future, as `submit`.
        """
        return self._queue.submit(Job.of(records))

    def flush(self, timeout: float = 15.0) -> int:
        """Wait until everything submitted so far is on disk or has been refused by it, `timeout` seconds at most.

        Returns:
            `missing`.
        """
        self._queue.flush(timeout)
        return self.missing

    def close(self, timeout: float = 15.0) -> int:
        """Write what waits, give the last batches their final names, release the run. May be called again.

        Args:
            timeout: seconds to wait at most.

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
                logger.error("dump: closed with {} records missing from {}{}", self.missing, self.folder, late)
        return self.missing
