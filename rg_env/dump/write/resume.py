"""Finishes the files that a killed attempt left open, when the next attempt starts.

Afterwards every open file of the run has its final name and ends in a whole line, and every group whose text is in one
of them has a ledger line. The ledger is completed before text files are renamed, so a kill during this work loses
nothing: the next attempt repeats it. Memory does not grow with the texts.

Not covered: a `.part` beside a finished file of its number, which only copying leaves. Readers take the longer one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from loguru import logger

from rg_env.dump.codec import BadLineError, from_line, ledger_line
from rg_env.dump.files import DumpFile, is_taken, list_files
from rg_env.dump.open_file import open_lines
from rg_env.dump.schema import FileKind, GroupRecord, Record
from rg_env.dump.write.part_file import PartFile


class _Named(Record, frozen=True, kw_only=True):
    """The id in the line of a group."""

    group_id: str


def finish_leftovers(folder: Path, run_id: str) -> None:
    """Finish the files that a killed attempt of this run left open. The caller holds the run's lock.

    Raises:
        OSError, DumpError: the folder or a file in it cannot be read or written, or needs a later version of rg_env.
    """
    files = list_files(folder, run_id, every_form=True)
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
