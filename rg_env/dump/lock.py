"""At most one writer per run and folder, across processes and hosts, by `filelock`.

Invariant: while a `RunLock` is held, no other process can hold the one of the same run in the same folder. The kernel
releases it when its process ends, so a crash leaves nothing to clean up. Forked children do not hold it.

Not covered: network file systems whose locks are local to a host. The lock file names its holder, so that a second
writer there is warned. Even then two writers never share a file, because batches are created exclusively. On file
systems without locks, `filelock` goes by the file's existence: after a crash it may have to be removed by hand.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from loguru import logger

from rg_env.dump.files import lock_name
from rg_env.dump.open_file import open_regular
from rg_env.errors import DumpError

if TYPE_CHECKING:
    from filelock import BaseFileLock

_THIS_HOST = f" on {socket.gethostname()}"


class RunLock:
    """The lock of one run, held from construction to `release`, which any thread may call.

    Raises:
        DumpError: another process holds it, which the message names, or the lock file cannot be created.
    """

    def __init__(self, folder: Path, run_id: str) -> None:
        from filelock import FileLock, Timeout  # slow to import, and not needed for reading

        self._path = folder / lock_name(run_id)
        holder = _holder(self._path)
        self._lock: BaseFileLock = FileLock(self._path, thread_local=False, mode=0o666)
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            raise DumpError(
                f"run {run_id} is being written to {folder} by {_holder(self._path) or 'another process'}: wait until "
                f"it ends, or use another trainer.ckpt_path or dump_dir (if none runs, remove {self._path})"
            ) from None
        except OSError as error:
            raise DumpError(f"{self._path} cannot be locked ({error.strerror}): use another dump_dir") from None
        self._inode = _inode(self._path)
        if _goes_by_existence(self._lock):
            return
        if holder and not holder.endswith(_THIS_HOST):
            unclean = "run {} continues from {}, which exited uncleanly; if it is still running, stop it"
            logger.warning(unclean, run_id, holder)
        with contextlib.suppress(OSError):  # a full disk: the file does not name its holder
            fd = os.open(self._path, os.O_WRONLY | os.O_TRUNC)
            try:
                os.write(fd, f"process {os.getpid()}{_THIS_HOST}\n".encode())
            finally:
                os.close(fd)

    def in_place(self) -> bool:
        """False when the file has been removed: others could then lock a new one."""
        return self._inode is not None and _inode(self._path) == self._inode

    def release(self) -> None:
        """Release the lock. The file is removed first, so that nobody locks an unlinked file."""
        with contextlib.suppress(OSError):  # a folder that has become read-only: the remaining file is harmless
            if self.in_place():
                self._path.unlink()
        self._lock.release()


def _goes_by_existence(lock: BaseFileLock) -> bool:
    """Whether the file system has no locks, and the file's content is `filelock`'s."""
    from filelock import SoftFileLock

    return isinstance(lock, SoftFileLock)


def is_held(folder: Path, run_id: str) -> bool:
    """Whether a process writes this run now; False where that cannot be known.

    To find out, a lock file left by a crash is locked for a few microseconds.
    """
    from filelock import FileLock, Timeout

    path = folder / lock_name(run_id)
    if not path.exists():
        return False
    lock = FileLock(path)
    try:
        with lock.acquire(blocking=False):
            return False
    except Timeout:
        return True
    except OSError:
        return False


def _holder(path: Path) -> str:
    """Whom the lock file names."""
    with contextlib.suppress(OSError), open_regular(path) as file:
        return file.read(256).decode(errors="replace").strip()
    return ""


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
