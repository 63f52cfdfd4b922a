"""At most one writer per run and folder, across processes and hosts, by `filelock`. The kernel releases the lock when
its process ends. Forked children do not hold it.

Not covered: network file systems whose locks are local to a host, and a lock file that somebody removes. Even then two
writers never share a file, because files are created exclusively.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rg_env.dump.files import lock_name, open_regular
from rg_env.errors import DumpError

if TYPE_CHECKING:
    from filelock import BaseFileLock


class RunLock:
    """The lock of one run, from construction to `release`, which any thread may call; a DumpError names the holder."""

    def __init__(self, folder: Path, run_id: str) -> None:
        from filelock import FileLock, SoftFileLock, Timeout  # slow to import, and not needed for reading

        self._path = folder / lock_name(run_id)
        self._lock = cast("BaseFileLock", FileLock(self._path, thread_local=False, mode=0o666))
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            holder = ""
            with contextlib.suppress(OSError), open_regular(self._path) as file:
                holder = file.read(256).decode(errors="replace").strip()
            raise DumpError(
                f"run {run_id} is being written to {folder} by {holder or 'another process'}: wait until "
                f"it ends, or use another trainer.ckpt_path or dump_dir (if none runs, remove {self._path})"
            ) from None
        except OSError as error:
            raise DumpError(f"{self._path} cannot be locked ({error.strerror}): use another dump_dir") from None
        if not isinstance(self._lock, SoftFileLock):  # whose file has a content of its own
            with contextlib.suppress(OSError):  # a full disk: the file does not name its holder
                fd = os.open(self._path, os.O_WRONLY | os.O_TRUNC)
                try:
                    os.write(fd, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
                finally:
                    os.close(fd)

    def release(self) -> None:
        """Release the lock. The file is removed first, so that nobody locks an unlinked file."""
        with contextlib.suppress(OSError):  # a folder that has become read-only: the remaining file is harmless
            self._path.unlink(missing_ok=True)
        self._lock.release()


def is_held(folder: Path, run_id: str) -> bool:
    """Whether a process writes this run now; False where that cannot be known. Locks for a few microseconds."""
    from filelock import FileLock, Timeout

    path = folder / lock_name(run_id)
    try:
        if path.exists():
            FileLock(path).acquire(blocking=False).lock.release()
    except Timeout:
        return True
    except OSError:
        pass
    return False
