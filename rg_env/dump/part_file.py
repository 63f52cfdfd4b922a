"""The file being filled: whole lines are appended to a `.part`, which is renamed when it is full.

After any method returns or raises, the file ends where its last whole line ended, or is cut back to there before it is
next written. A finished file never takes a name that is in use, and no file is empty.

When the next attempt of a killed run starts, every open file of the run gets its final name and ends in a whole line,
and every group whose text is in one gets a ledger line. The ledger is completed before text files are renamed, so a
kill during this work loses nothing: the next attempt repeats it. Memory does not grow with the texts.

Not covered: a `.part` beside a finished file of its number, which only copying leaves. Readers take the longer one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from loguru import logger

from rg_env.atomic import sync_path, write_all
from rg_env.dump.files import PART, DumpFile, batch_name, free_number, is_taken, list_files, open_lines
from rg_env.dump.schema import BadLineError, FileKind, GroupRecord, Record, from_line, ledger_line


class PartFile:
    """The files of one kind of one run, one after the other, of at most `limit` lines. Not thread-safe.

    The folder is created again when it has been removed. With `fsync`, finished files are forced to disk.
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
        """Open a file, or cut the open one back to its last whole line; a full one is finished before."""
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
        """Write a whole line; `prepare` has been called. After an OSError `drop` removes what is there."""
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
        """Force what has been appended, and the name of the file, to disk."""
        if self._fd is not None:
            os.fsync(self._fd)
            sync_path(self._folder)

    def finish(self) -> Path | None:
        """Give the file, if there is one, its final name and return it. After an OSError it stays open."""
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


# -- what a killed attempt left


class _Named(Record, frozen=True, kw_only=True):
    """The id in the line of a group."""

    group_id: str


def finish_leftovers(folder: Path, run_id: str) -> None:
    """Finish the files that a killed attempt of this run left open. The caller holds the run's lock."""
    files = list_files(folder, run_id)
    parts = [file for file in files if file.part and not is_taken(file.path.with_suffix(""))]
    for file in parts:
        _cut_torn_tail(file.path)
    parts = [file for file in parts if file.path.exists()]
    texts = [file for file in parts if file.kind.holds_text]
    orphans = _without_ledger_line(texts, [file for file in files if file.kind is FileKind.LEDGER])
    for file in parts:
        if not file.kind.holds_text:
            file.path.rename(file.path.with_suffix(""))
    if orphans:
        _complete_ledger(folder, run_id, orphans)
    for file in texts:
        file.path.rename(file.path.with_suffix(""))
    if parts:
        done = "run {}: finished {} files that an earlier attempt left open in {}; added {} missing ledger lines"
        logger.info(done, run_id, len(parts), folder, len(orphans))


def _cut_torn_tail(path: Path) -> None:
    """Cut off a last line without a line feed, if there is one; remove a file that contains nothing else."""
    size = keep = path.stat().st_size
    with path.open("rb") as file:
        while keep:
            start = max(0, keep - (1 << 20))
            file.seek(start)
            keep = start + file.read(keep - start).rfind(b"\n") + 1
            if keep > start:
                break
    if not keep:
        path.unlink()
    elif keep < size:
        os.truncate(path, keep)
        logger.warning("{}: cut off a torn last line of {} bytes", path.name, size - keep)


def _without_ledger_line(texts: list[DumpFile], ledger: list[DumpFile]) -> dict[str, tuple[DumpFile, int]]:
    """Where the groups are whose text was written, but not their ledger line."""
    orphans = {group_id: (file, at) for file in texts for group_id, at in _groups_in(file)}
    for file in reversed(ledger):  # they are most likely in the last file
        if not orphans:
            break
        if file.path.exists():
            for group_id, _ in _groups_in(file):
                orphans.pop(group_id, None)
    return orphans


def _groups_in(file: DumpFile) -> Iterator[tuple[str, int]]:
    """The id of each group in a file, and the byte at which its line begins."""
    at = 0
    with open_lines(file.path) as lines:
        for line in lines:
            try:
                yield from_line(_Named, line).group_id, at
            except BadLineError as error:
                logger.warning("{}: left the damaged line at byte {} as it is ({})", file.path.name, at, error)
            at += len(line)


def _complete_ledger(folder: Path, run_id: str, orphans: dict[str, tuple[DumpFile, int]]) -> None:
    """Write the missing ledger lines into a file of their own."""
    ledger = PartFile(folder, FileKind.LEDGER, run_id, limit=len(orphans))
    ledger.prepare()
    for file, at in orphans.values():
        with file.path.open("rb") as lines:
            lines.seek(at)
            try:
                group = from_line(GroupRecord, lines.readline())
            except BadLineError as error:
                logger.warning("{}: left the damaged line at byte {} as it is ({})", file.path.name, at, error)
                continue
        ledger.append(ledger_line(group, file.kind))
    ledger.sync()
    ledger.finish()
