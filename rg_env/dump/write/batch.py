"""The batch being filled: an append-only file of whole lines.

Invariant: after any method returns or raises, the file ends where its last whole chunk ended, or is cut back to there
before it is next written. A finished batch never takes a name that is in use, and no batch is empty.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from rg_env.atomic import sync_path, write_all
from rg_env.dump.files import PART, batch_name, free_number, is_taken
from rg_env.dump.schema import FileKind, Place


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A state of a batch to roll back to."""

    size: int
    lines: int


class Batch:
    """The files of one kind of one run, one after the other. Not thread-safe.

    Args:
        folder: created again when it has been removed.
        kind: the kind of file.
        run_id: the run.
        limit: lines in a full batch, at least 1.

    Raises:
        OSError: the folder cannot be listed.
    """

    def __init__(self, folder: Path, kind: FileKind, run_id: str, limit: int) -> None:
        self.kind = kind
        self.limit = limit
        self.lines = 0
        self._folder = folder
        self._run_id = run_id
        self._number = free_number(folder, kind, run_id)
        self._part = Path()
        self._fd: int | None = None
        self._size = 0
        self._name_synced = False

    @property
    def path(self) -> Path:
        """The name that the current batch will have when it is finished."""
        return self._folder / batch_name(self.kind, self._run_id, self._number)

    @property
    def number(self) -> int:
        """The number of the batch that `prepare` has opened."""
        return self._number

    @property
    def is_full(self) -> bool:
        return self.lines >= self.limit

    def check(self) -> int:
        """Abandon the current file if it has been removed or moved.

        Returns:
            lines lost with it; usually 0.

        Raises:
            OSError: its state is unknown; try again later.
        """
        if self._fd is None or self._in_place():
            return 0
        lost = self.lines
        self._forget()
        return lost

    def prepare(self) -> None:
        """Open a file or cut the open one back to its last whole chunk. The batch is not full.

        Raises:
            OSError: the disk refuses; try again later.
        """
        if self._fd is None:
            self._open()
        elif os.fstat(self._fd).st_size != self._size:
            os.ftruncate(self._fd, self._size)

    def mark(self) -> Savepoint:
        return Savepoint(self._size, self.lines)

    @property
    def end(self) -> Place:
        """Where the next line will begin; `prepare` has been called."""
        return self._number, self._size

    def append(self, chunk: bytes, lines: int = 1) -> None:
        """Write whole lines, with their line feeds; `prepare` has been called.

        Raises:
            OSError: some of them may be in the file; `roll_back` to a mark removes them.
        """
        assert self._fd is not None
        self._size += len(chunk)
        self.lines += lines
        write_all(self._fd, chunk)

    def sync(self) -> None:
        """Force what has been appended to disk, and the name of the file with it, so that it survives a power failure.

        Raises:
            OSError: the disk refuses.
        """
        if self._fd is None:
            return
        os.fsync(self._fd)
        if not self._name_synced:
            sync_path(self._folder)
            self._name_synced = True

    def roll_back(self, mark: Savepoint) -> None:
        """Go back to `mark`. Never raises: what cannot be cut off now is cut off by the next `prepare`."""
        self._size, self.lines = mark.size, mark.lines
        with contextlib.suppress(OSError):
            if self._size == 0:
                self._part.unlink(missing_ok=True)
                self._forget()
            elif self._fd is not None:
                os.ftruncate(self._fd, self._size)

    def finish(self) -> Path | None:
        """Give the batch its final name; the next one starts with the next line.

        Returns:
            the file, or None if nothing was written.

        Raises:
            OSError: it keeps its `.part` name and stays open.
        """
        if self._fd is None:
            return None
        if not self.lines:
            self._part.unlink(missing_ok=True)
            self._forget()
            return None
        os.ftruncate(self._fd, self._size)
        if is_taken(self.path):
            self._number = free_number(self._folder, self.kind, self._run_id)
        final = self._part.rename(self.path)
        self._forget()
        self._number += 1
        return final

    def _open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        if is_taken(self.path) or self._part_name().exists():
            self._number = free_number(self._folder, self.kind, self._run_id)
        part = self._part_name()
        self._fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        self._part = part
        self._name_synced = False

    def _part_name(self) -> Path:
        return self.path.with_name(self.path.name + PART)

    def _in_place(self) -> bool:
        assert self._fd is not None
        try:
            return os.path.samestat(self._part.stat(), os.fstat(self._fd))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _forget(self) -> None:
        fd, self._fd, self._size, self.lines = self._fd, None, 0, 0
        if fd is not None:
            os.close(fd)
