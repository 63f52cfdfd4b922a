"""The file being filled: whole lines are appended to a `.part`, which is renamed when it is full.

After any method returns or raises, the file ends where its last whole line ended, or is cut back to there before it is
next written. A finished file never takes a name that is in use, and no file is empty.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from loguru import logger

from rg_env.atomic import sync_path, write_all
from rg_env.dump.files import PART, batch_name, free_number, is_taken
from rg_env.dump.schema import FileKind


class PartFile:
    """The files of one kind of one run, one after the other. Not thread-safe.

    Args:
        folder: created again when it has been removed.
        limit: lines in a full file, at least 1.
        fsync: whether finished files are forced to disk.

    Raises:
        OSError: the folder cannot be listed.
    """

    def __init__(self, folder: Path, kind: FileKind, run_id: str, limit: int, fsync: bool = False) -> None:
        self.kind, self.limit, self.lines = kind, limit, 0
        self._fsync = fsync
        self._folder, self._run_id = folder, run_id
        self._number = free_number(folder, kind, run_id)
        self._part = Path()
        self._fd: int | None = None
        self._size = 0

    def prepare(self) -> None:
        """Open a file, or cut the open one back to its last whole line; a full one is finished before.

        Raises:
            OSError: the disk refuses; try again later.
        """
        if self.lines >= self.limit:
            self.finish()
        if self._fd is not None and not self._is_in_place(self._fd):
            why = "dump: {} was removed or moved while being written, with {} lines; starting anew"
            logger.error(why, self._part.name, self.lines)
            self._forget()
        if self._fd is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            if is_taken(self._path()) or self._path(PART).exists():
                self._number = free_number(self._folder, self.kind, self._run_id)
            self._fd = os.open(self._path(PART), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
            self._part = self._path(PART)
        elif os.fstat(self._fd).st_size != self._size:
            os.ftruncate(self._fd, self._size)

    def append(self, line: bytes) -> None:
        """Write a whole line; `prepare` has been called.

        Raises:
            OSError: some of it may be in the file; `drop` removes it.
        """
        assert self._fd is not None
        self._size += len(line)
        self.lines += 1
        write_all(self._fd, line)

    def drop(self, line: bytes) -> None:
        """Take back the last line, with which `append` was called. Never raises: the next `prepare` cuts it off."""
        self._size -= len(line)
        self.lines -= 1
        with contextlib.suppress(OSError):
            self._cut()

    def sync(self) -> None:
        """Force what has been appended, and the name of the file, to disk.

        Raises:
            OSError: the disk refuses.
        """
        if self._fd is not None:
            os.fsync(self._fd)
            sync_path(self._folder)

    def finish(self) -> Path | None:
        """Give the file its final name; the next one starts with the next line.

        Returns:
            the file, or None if nothing was written.

        Raises:
            OSError: it keeps its `.part` name and stays open.
        """
        self._cut()
        if self._fd is None:
            return None
        if self._fsync:
            os.fsync(self._fd)
        if is_taken(self._path()):
            self._number = free_number(self._folder, self.kind, self._run_id)
        final = self._part.rename(self._path())
        self._forget()
        self._number += 1
        return final

    def _cut(self) -> None:
        """Cut off what is not whole; remove a file without lines."""
        if self._fd is not None and not self.lines:
            self._part.unlink(missing_ok=True)
            self._forget()
        elif self._fd is not None:
            os.ftruncate(self._fd, self._size)

    def _path(self, ending: str = "") -> Path:
        return self._folder / (batch_name(self.kind, self._run_id, self._number) + ending)

    def _is_in_place(self, fd: int) -> bool:
        try:
            return os.path.samestat(self._part.stat(), os.fstat(fd))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _forget(self) -> None:
        fd, self._fd, self._size, self.lines = self._fd, None, 0, 0
        if fd is not None:
            os.close(fd)
