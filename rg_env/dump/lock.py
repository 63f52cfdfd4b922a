"""At most one writer per run and folder, across processes and hosts.

Invariant: while a `RunLock` is held, no other process can hold the one of the same run in the same folder. The kernel
releases it when its process ends, so a crash leaves nothing to clean up. Forked children, which would inherit it,
release it immediately.

Not covered: network file systems whose locks are local to a host, or that have no locks. The lock file names its
holder, so with local locks a second writer is warned (the first may have crashed), and without locks it is refused
until the file is removed manually. Even then two writers never share a file, because batches are created exclusively.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
from pathlib import Path

from loguru import logger

from rg_env.dump.files import lock_name
from rg_env.errors import DumpError

_NO_FLOCK = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
_THIS_HOST = f" on {socket.gethostname()}"
_HELD: set[int] = set()
"""File descriptors of the locks that this process holds."""


def _release_in_child() -> None:
    for fd in _HELD:
        os.close(fd)
    _HELD.clear()


os.register_at_fork(after_in_child=_release_in_child)


class RunLock:
    """The lock of one run, held from construction to `release`.

    Raises:
        DumpError: another process holds it, which the message names, or the lock file cannot be created.
    """

    def __init__(self, folder: Path, run_id: str) -> None:
        self._path = folder / lock_name(run_id)
        try:
            self._fd = self._acquire(folder, run_id)
        except OSError as error:
            raise DumpError(f"{self._path} cannot be locked ({error.strerror}): use another dump_dir") from None
        _HELD.add(self._fd)

    def _acquire(self, folder: Path, run_id: str) -> int:
        while True:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o666)
            holder = os.read(fd, 256).decode(errors="replace").strip()
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                raise DumpError(
                    f"run {run_id} is being written to {folder} by {holder or 'another process'}: wait until it ends, "
                    "or use another trainer.ckpt_path or dump_dir"
                ) from None
            except OSError as error:
                if error.errno not in _NO_FLOCK:
                    os.close(fd)
                    raise
                if holder and not _has_ended(holder):
                    os.close(fd)
                    raise DumpError(
                        f"{folder} has no file locks, and the lock file names {holder} as the writer of run {run_id}: "
                        f"if it has ended, remove {self._path}"
                    ) from None
                logger.warning("{} has no file locks: make sure that only one process writes run {}", folder, run_id)
            if self._is(fd):
                if holder and not holder.endswith(_THIS_HOST):
                    logger.warning(
                        "run {} continues from {}, which exited uncleanly; if it is still running, stop it",
                        run_id,
                        holder,
                    )
                with contextlib.suppress(OSError):  # a full disk: the file does not name its holder
                    os.ftruncate(fd, 0)
                    os.pwrite(fd, f"process {os.getpid()}{_THIS_HOST}\n".encode(), 0)
                return fd
            os.close(fd)  # its holder removed the file between our open and our lock

    def in_place(self) -> bool:
        """False when the file has been removed: others could then lock a new one."""
        return self._is(self._fd)

    def release(self) -> None:
        """Release the lock. The file is removed first, so that nobody locks an unlinked file."""
        with contextlib.suppress(OSError):  # a folder that has become read-only: the remaining file is harmless
            if self.in_place():
                self._path.unlink(missing_ok=True)
        _HELD.discard(self._fd)
        os.close(self._fd)

    def _is(self, fd: int) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(fd))
        except (FileNotFoundError, NotADirectoryError):
            return False


def is_held(folder: Path, run_id: str) -> bool:
    """Whether a process writes this run now. False on file systems without `flock`, where it is unknown.

    To find out, a lock file left by a crash is locked for a few microseconds.
    """
    try:
        fd = os.open(folder / lock_name(run_id), os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False


def _has_ended(holder: str) -> bool:
    """Whether the process that a lock file names is known to have ended; False for one on another host."""
    words = holder.removesuffix(_THIS_HOST).split()
    if not holder.endswith(_THIS_HOST) or not words[-1].isdigit():
        return False
    try:
        os.kill(int(words[-1]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
