"""The writer of a run: takes groups from the event loop and writes them to disk as whole lines.

Invariants:
- A group's ledger line is its commit record: no group is incomplete, and none is there twice (`commit`).
- Groups reach the files in the order in which they were submitted (`queue`).
- A disk error never raises into training. Records that are not on disk are counted (`missing`) and bounded in memory.
  They are logged when trouble starts, whenever their number has doubled, and when it ends.
- Lock-free between threads, so that a signal handler may call `close` at any moment.

Not covered: a power failure, except as `fsync` says: the operating system decides when it writes lines to the device.
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

from rg_env.config import RGDumpConfig
from rg_env.dump.files import check_folder, list_files
from rg_env.dump.schema import FileKind, GroupRecord
from rg_env.dump.write.batch import Fsync
from rg_env.dump.write.commit import Committer
from rg_env.dump.write.compress import Compression
from rg_env.dump.write.queue import Job, Record, WriteQueue
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
        policy: which groups' text is kept.
        groups_per_file: lines in a finished batch, the ledger's too.
        failed_groups_per_file: lines in a finished FAILED batch.
        max_pending_bytes: approximate amount of text that may wait for a slow disk; groups beyond it are dropped and
            counted.
        fsync: what survives a power failure.
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
        if others := {file.run_id for file in list_files(self.folder)} - {run_id}:
            also = "{} already holds other runs ({}); `rg-env dumps` commands read them together with this one"
            logger.warning(also, self.folder, len(others))
        committer = Committer(self.folder, run_id, policy or DumpPolicy(), limits, Fsync(fsync), compressing)
        self._late = 0
        self._pid = os.getpid()
        self._queue = WriteQueue(f"rg-dump-{run_id}", committer.commit, committer.close, max_pending_bytes)
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
            failed_groups_per_file=config.failed_groups_per_file,
            fsync=config.dump_fsync,
            compression=config.dump_compression,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def missing(self) -> int:
        """Number of submitted records that are not on disk: waiting or dropped."""
        return self._queue.missing

    async def write(self, groups: Sequence[GroupRecord], timeout: float) -> bool:
        """Submit `groups` and wait until the operating system has them.

        Args:
            groups: whole groups, in order.
            timeout: maximum wait in seconds.

        Returns:
            True if they survive the end of this process. False, after a logged error, if they do not yet; they are
            still written as soon as possible. A disk error never raises.
        """
        future = asyncio.wrap_future(self.submit(groups))
        try:
            async with asyncio.timeout(timeout):  # unlike wait_for, it never swallows a cancellation
                on_disk = await asyncio.shield(future)
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

    def submit(self, records: Sequence[Record]) -> Future[bool]:
        """Hand over records of any kind without waiting. They are written after earlier submissions.

        Returns:
            a future: True once the operating system has all their lines (of a group: text and ledger line), False after
            a failure (they are kept and retried, unless `max_pending_bytes` is exceeded).
        """
        return self._queue.submit(Job.of(records))

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
                logger.error("dump: closed with {} records missing from {}{}", self.missing, self.folder, late)
        return self.missing
