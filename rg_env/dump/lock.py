"""One writer per run and folder, whatever process or host it is on.

Invariant: while a `RunLock` is held, no other process can hold the one of the same run in the same folder. The kernel
drops it with the process that holds it, so that a crash leaves nothing to clean up. It does not cover file systems
without `flock` (some network mounts): there a warning says so and writing goes on.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from pathlib import Path

from loguru import logger

from rg_env.dump.files import lock_name
from rg_env.errors import DumpError

_NO_FLOCK = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


class RunLock:
    """The lock of one run, held from construction to `release`.

    Raises:
        DumpError: another process holds it; the message says which.
        OSError: the lock file cannot be made.
    """

    def __init__(self, folder: Path, run_id: str) -> None:
        self._path = folder / lock_name(run_id)
        while True:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.read(self._fd, 256).decode(errors="replace").strip() or "another process"
                os.close(self._fd)
                raise DumpError(
                    f"run {run_id} is being written to {folder} by {holder}: wait until it ends, or use another "
                    "trainer.ckpt_path or dump_dir"
                ) from None
            except OSError as error:
                if error.errno not in _NO_FLOCK:
                    os.close(self._fd)
                    raise
                logger.warning("{} has no file locks: make sure that only one process writes run {}", folder, run_id)
            if self.in_place():
                break
            os.close(self._fd)  # its holder removed the file between our open and our lock
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def in_place(self) -> bool:
        """False when the file has been removed under us: others could then lock a new one."""
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._fd))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def release(self) -> None:
        """Let go. The file is removed while the lock is still held, so that nobody locks a file without a name."""
        if self.in_place():
            self._path.unlink(missing_ok=True)
        os.close(self._fd)
