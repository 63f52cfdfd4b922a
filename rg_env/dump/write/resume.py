"""Finishes the files that a killed attempt left open, when the next attempt starts.

Invariant: afterwards no `.part` file of the run is left, every `.jsonl` ends in a whole line, and every group whose
text is in one of the open files has a ledger line. The ledger is completed before text files are renamed, so a kill
during this work loses nothing: the next attempt repeats it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from loguru import logger

from rg_env.dump.codec import to_line
from rg_env.dump.files import DumpFile, batch_name, free_number, is_taken, list_files
from rg_env.dump.read.lines import lines_in
from rg_env.dump.schema import FileKind, GroupRecord, LedgerRecord
from rg_env.dump.write.batch import Batch


@dataclass(slots=True)
class Leftovers:
    """What was left to do.

    Attributes:
        files: `.part` files that got their final names.
        torn: torn last lines that were cut off.
        ledger_lines: lines that were added to the ledger.
    """

    files: int = 0
    torn: int = 0
    ledger_lines: int = 0


def finish_leftovers(folder: Path, run_id: str) -> Leftovers:
    """Finish the files that a killed attempt of this run left open. The caller holds the run's lock.

    Raises:
        OSError, DumpError: the folder or a file in it cannot be read or written.
    """
    parts = [file for file in list_files(folder, run_id) if file.part]
    done = Leftovers(torn=sum(_cut_torn_tail(file.path) for file in parts))
    parts = [file for file in parts if file.path.exists()]
    orphans = _without_ledger_line(folder, run_id, [file for file in parts if file.kind.holds_text])
    for file in parts:
        if not file.kind.holds_text:
            _rename(file)
    if orphans:
        _append_to_ledger(folder, run_id, orphans)
    for file in parts:
        if file.kind.holds_text:
            _rename(file)
    done.files, done.ledger_lines = len(parts), len(orphans)
    if parts or orphans:
        done_what = "run {}: finished {} batches that an earlier attempt left open in {}; added {} missing ledger lines"
        logger.info(done_what, run_id, done.files, folder, done.ledger_lines)
    return done


def _cut_torn_tail(path: Path) -> bool:
    """Cut off a last line without a line feed, if there is one; remove a file that contains nothing else."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        keep = end
        while keep:
            start = max(0, keep - (1 << 20))
            file.seek(start)
            found = file.read(keep - start).rfind(b"\n")
            if found >= 0:
                keep = start + found + 1
                break
            keep = start
    if not keep:
        path.unlink()
    elif keep < end:
        os.truncate(path, keep)
        logger.warning("{}: cut off a torn last line of {} bytes", path.name, end - keep)
    return keep < end


def _without_ledger_line(folder: Path, run_id: str, texts: list[DumpFile]) -> list[LedgerRecord]:
    """The ledger lines of groups whose text was written, but not their ledger line."""
    groups: dict[str, LedgerRecord] = {}
    for file in texts:
        for line in lines_in(file):
            if isinstance(line.record, GroupRecord) and line.record.schema_version:
                groups[line.record.group_id] = LedgerRecord.of(line.record, file.kind, None, (file.batch, line.offset))
            elif line.record is None:
                logger.warning("{}: left damaged line {} as it is ({})", file.path.name, line.number, line.fault)
    ledger = [file for file in list_files(folder, run_id) if file.kind is FileKind.LEDGER]
    for file in reversed(ledger):  # they are most likely in the last batch
        if not groups:
            break
        for line in lines_in(file):
            if isinstance(line.record, LedgerRecord):
                groups.pop(line.record.group_id, None)
    return list(groups.values())


def _append_to_ledger(folder: Path, run_id: str, records: list[LedgerRecord]) -> None:
    batch = Batch(folder, FileKind.LEDGER, run_id, limit=len(records))
    batch.prepare()
    batch.append(b"".join(map(to_line, records)), len(records))
    batch.sync()
    batch.finish()


def _rename(file: DumpFile) -> None:
    final = file.path.with_suffix("")
    if is_taken(final):
        number = free_number(final.parent, file.kind, file.run_id)
        final = final.with_name(batch_name(file.kind, file.run_id, number))
    file.path.rename(final)
