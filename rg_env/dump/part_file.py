"""The file being filled: whole lines are appended to a `.part`, which is renamed when it is full.

After any method returns or raises, the file ends where its last whole line ended, or is cut back to there before it is
next written. A finished file never takes a name that is in use, and no file is empty.

When the next attempt of a killed run starts, every open file of the run gets its final name and ends in a whole line,
and every group whose text is in one gets a ledger line. The ledger is completed before text files are renamed, so a
kill during this work loses nothing: the next attempt repeats it. Memory does not grow with the texts.

Groups whose file was removed, moved or not synced are counted as lost. Not covered: finished files that go away later.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from loguru import logger

from rg_env.base.atomic import sync_fd, sync_path, write_all
from rg_env.dump.files import PART, DumpFile, batch_name, free_number, is_taken, lines_in, list_files
from rg_env.dump.schema import BadLineError, FileKind, GroupName, GroupRecord, Record, from_line, ledger_line


class PartFile:
    """The files of one kind of one run, one after the other, of at most `limit` lines. Not thread-safe.

    Before each file is created, `make_folder` makes the folder, which may have been removed or renamed. With `fsync`,
    finished files are forced to disk. The ids of groups that were written and may not be on disk are added to `lost`.
    """

    def __init__(
        self,
        folder: Path,
        kind: FileKind,
        run_id: str,
        limit: int,
        *,
        fsync: bool = False,
        lost: set[str] | None = None,
        make_folder: Callable[[], None] | None = None,
    ) -> None:
        self.kind, self.limit = kind, limit
        self.lost: set[str] = set() if lost is None else lost
        self._fsync = fsync
        self._names: list[str] = []  # of the groups in the open file; "" for other records
        self._synced = 0  # how many of these are known to be on disk
        self._folder, self._run_id = folder, run_id
        self._make_folder = make_folder or partial(folder.mkdir, parents=True, exist_ok=True)
        self._number = free_number(folder, kind, run_id)
        self._part = Path()
        self._fd: int | None = None
        self._size = 0
        self._is_checked = False

    @property
    def lines(self) -> int:
        """Number of lines in the open file."""
        return len(self._names)

    @property
    def is_full(self) -> bool:
        """Whether it is to be finished."""
        return self.lines >= self.limit

    def recheck(self) -> None:
        """Before the next line, look whether the file is still there and ends where it should."""
        self._is_checked = False

    def append(self, line: bytes, group_id: str = "") -> tuple[int, int]:
        """Write a whole line, after a full file has been finished. After an OSError nothing is written.

        Returns:
            the number of its file, and the byte at which it begins.
        """
        if self.is_full:
            self.finish()
        fd = self._open()
        try:
            # Whatever ends the write: half a line must not stay in front of the next one.
            write_all(fd, line)
        except BaseException:
            self._try_to_cut()
            raise
        start = self._size
        self._size += len(line)
        self._names.append(group_id)
        return self._number, start

    def take_back(self, line: bytes) -> None:
        """Remove the last line. Never raises: what cannot be removed now is cut off before the next line is written."""
        self._size -= len(line)
        self._names.pop()
        self._try_to_cut()

    def sync(self) -> None:
        """Force what has been appended, and the name of the file, to disk. After an OSError what was not is lost."""
        if self._fd is None:
            return
        try:
            # Both, always: the names matter also where a file cannot be forced.
            forced = sync_fd(self._fd), sync_path(self._folder)
        except OSError:
            # Linux reports such an error once and drops the pages: the next fsync succeeds without the data.
            self._lose(self._names[self._synced :])
            raise
        finally:
            # After an error, too: those groups have been counted as lost.
            self._synced = self.lines
        if not all(forced):
            _say_not_forced(self._folder)

    def finish(self) -> Path | None:
        """Give the file, if there is one, its final name and return it. After an OSError it stays open."""
        self._notice_loss()
        self._cut()
        if self._fd is None:
            return None
        if self._fsync:
            # Before the rename: no finished name stands for data that a power failure can still take.
            self.sync()
        # A file of this number may have come into the folder since; it keeps its name.
        if is_taken(self._path()):
            self._number = free_number(self._folder, self.kind, self._run_id)
        final = self._part.rename(self._path())
        self._forget()
        self._number += 1
        return final

    def _open(self) -> int:
        """Return the descriptor of the file, which is created if there is none, and ends in a whole line."""
        if not self._is_checked:
            self._notice_loss()
            if self._fd is not None and os.fstat(self._fd).st_size != self._size:
                os.ftruncate(self._fd, self._size)
        if self._fd is None:
            self._make_folder()
            if is_taken(self._path()) or self._path(PART).exists():
                self._number = free_number(self._folder, self.kind, self._run_id)
            self._part = self._path(PART)
            # Exclusively: two writers share no file, even where the lock does not hold between hosts.
            self._fd = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        self._is_checked = True
        return self._fd

    def _cut(self) -> None:
        """Cut off what is not whole; remove a file without lines."""
        if self._fd is not None and not self.lines:
            self._part.unlink(missing_ok=True)
            self._forget()
        elif self._fd is not None:
            os.ftruncate(self._fd, self._size)

    def _try_to_cut(self) -> None:
        self.recheck()
        with suppress(OSError):
            self._cut()

    def _path(self, ending: str = "") -> Path:
        return self._folder / (batch_name(self.kind, self._run_id, self._number) + ending)

    def _notice_loss(self) -> None:
        """If the file was removed or moved, say so, count its groups as lost and forget it."""
        if self._fd is None or self._is_in_place(self._fd):
            return
        why = "dump: {} was removed or moved while being written, with {} lines; starting anew"
        logger.error(why, self._part.name, self.lines)
        self._lose(self._names)
        self._forget()

    def _is_in_place(self, fd: int) -> bool:
        try:
            return os.path.samestat(self._part.stat(), os.fstat(fd))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _lose(self, names: list[str]) -> None:
        self.lost.update(name for name in names if name)

    def _forget(self) -> None:
        fd, self._fd, self._size = self._fd, None, 0
        self._names, self._synced = [], 0
        if fd is not None:
            os.close(fd)


@cache
def _say_not_forced(folder: Path) -> None:
    """Say once that groups reach this disk as the system likes: that is not a failure of the disk."""
    why = "dump: the file system of {} cannot force files to disk: a power failure may cost groups that were written"
    logger.warning(why, folder)


def finish_leftovers(folder: Path, run_id: str) -> None:
    """Finish the files that a killed attempt of this run left open. The caller holds the run's lock."""
    files = list_files(folder, run_id)
    # A `.part` beside its finished file is a copy, and stays.
    open_files = [file for file in files if file.is_open and not is_taken(file.path.with_suffix(""))]
    for file in open_files:
        _cut_torn_tail(file.path)
    # A file that held nothing but a torn line is gone by now.
    open_files = [file for file in open_files if file.path.exists()]
    # Groups with a text and without a ledger line. Only open files can have them: a writer finishes a file of texts
    # after the ledger has the lines of all its groups.
    texts = [file for file in open_files if file.kind.holds_text]
    orphans = {}
    for file in texts:
        for name, offset in _groups_in(file).items():
            orphans[name] = (file, offset)
    for file in reversed(files):  # the newest first: it most likely has the lines of these groups
        if orphans and file.kind is FileKind.LEDGER and file.path.exists():
            for name in _groups_in(file):
                orphans.pop(name, None)
    for file in open_files:
        if not file.kind.holds_text:
            file.path.rename(file.path.with_suffix(""))
    if orphans:
        _complete_ledger(folder, run_id, list(orphans.values()))
    # Texts last: as long as they are open, an attempt after a kill looks for their groups again.
    for file in texts:
        file.path.rename(file.path.with_suffix(""))
    if open_files:
        done = "run {}: finished {} files that an earlier attempt left open in {}; added {} missing ledger lines"
        logger.info(done, run_id, len(open_files), folder, len(orphans))


class _Attempt(Record, frozen=True, kw_only=True):
    """The id and the attempt in the line of a group."""

    group_id: str
    attempt: int = 1


def count_ledger_lines(folder: Path, run_id: str) -> Counter[int]:
    """Count the groups of each earlier attempt of a run in the ledger of this folder: an attempt that was killed could
    not note it.
    """
    names: set[str] = set()
    counts: Counter[int] = Counter()
    for file in list_files(folder, run_id):
        if file.kind is not FileKind.LEDGER:
            continue
        for line in lines_in(file, _Attempt):
            record = line.record
            # A copy of a ledger file must not count its groups twice.
            if isinstance(record, _Attempt) and record.group_id not in names:
                names.add(record.group_id)
                counts[record.attempt] += 1
    return counts


def _cut_torn_tail(path: Path) -> None:
    """Cut off a last line without a line feed, if there is one; remove a file that contains nothing else."""
    size = keep = path.stat().st_size
    with path.open("rb") as file:
        # Backward in blocks of 1 MB, to the last line feed.
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


def _groups_in(file: DumpFile) -> dict[str, int]:
    """Return the id of each group in a file, with the byte at which its line begins."""
    groups = {}
    for line in lines_in(file, GroupName):
        if isinstance(line.record, GroupName):
            groups[line.record.group_id] = line.offset
        else:
            logger.warning("{}: left the corrupt line {} as it is ({})", file.path.name, line.number, line.fault)
    return groups


def _complete_ledger(folder: Path, run_id: str, places: list[tuple[DumpFile, int]]) -> None:
    """Write the ledger lines of groups into a file of their own."""
    # One file for all of them, on disk before the texts get their final names.
    ledger = PartFile(folder, FileKind.LEDGER, run_id, limit=len(places), fsync=True)
    for file, offset in places:
        with file.path.open("rb") as lines:
            lines.seek(offset)
            try:
                group = from_line(GroupRecord, lines.readline())
            except BadLineError as error:
                logger.warning("{}: left the corrupt line at byte {} as it is ({})", file.path.name, offset, error)
                continue
        ledger.append(ledger_line(group, file.kind, place=(file.batch, offset)))
    ledger.finish()
