"""Writes a repaired copy of a damaged dump.

Invariant: the damaged dump is only read. The copy contains each of its whole records once, byte for byte if the line
was intact, and `validate` finds no trace of the damage. If a text and its ledger line disagree, the text's numbers win,
because they come from the same object as the text, unless they contradict the run's settings: then the text is damaged.
If a text is gone, the ledger keeps its numbers, with the reason `lost`.

Not covered: damage that leaves a line a valid record with other, possible numbers.

Kept in memory: id and two numbers of each group, a number of each training record, and the ledger lines that have to
be made.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from rg_env.dump.codec import to_line
from rg_env.dump.files import DumpFile, list_files, manifest_name
from rg_env.dump.lock import is_held
from rg_env.dump.read.chunks import Watch
from rg_env.dump.read.dump import Run, open_run
from rg_env.dump.read.lines import Line, UnreadableError, lines_in
from rg_env.dump.repair.changes import Change, Recovery
from rg_env.dump.repair.order import LevelOrder, TrainedOrder
from rg_env.dump.repair.salvage import salvage
from rg_env.dump.repair.settings_check import wrong_file, wrong_numbers
from rg_env.dump.run_settings import batch_limit, settings_of
from rg_env.dump.schema import FileKind, GroupRecord, LedgerRecord, LevelRecord, NotKept, TrainedRecord
from rg_env.dump.write.batch import Batch
from rg_env.dump.write.compress import compress
from rg_env.errors import DumpError

_R = TypeVar("_R", GroupRecord, LedgerRecord, TrainedRecord, LevelRecord)
_NO_LIMIT = 1 << 62


def recover(path: str | Path, out: str | Path, *, advance: Watch | None = None) -> list[Recovery]:
    """Write a repaired copy.

    Args:
        path: a dump folder, or a single file, whose lines are repaired without regard to the rest of its run.
        out: a folder without dumps; created if missing.
        advance: called with the bytes copied since the last call.

    Returns:
        the result for each run.

    Raises:
        DumpError: no dump at `path`, a file of it cannot be opened, `out` has a dump, or a run is being written now.
        NewerSchemaError: a file needs a later version of rg_env.
    """
    path, out = Path(path), Path(out)
    runs = open_run(path).runs
    for run in runs:
        if is_held(run.files[0].path.parent, run.run_id):
            raise DumpError(f"run {run.run_id} is being written now: repair it when it has ended")
    try:
        out.mkdir(parents=True, exist_ok=True)
        if list_files(out):
            raise DumpError(f"there is already a dump in {out}: choose an empty folder")
        return copy_runs(runs, out, whole=path.is_dir(), advance=advance)
    except OSError as error:
        raise DumpError(f"{out} cannot be written ({error.strerror}): choose another folder") from None


def copy_runs(runs: Sequence[Run], out: Path, *, whole: bool, advance: Watch | None) -> list[Recovery]:
    """As `recover`, for runs that are not being written.

    Args:
        whole: whether the runs have all their files, so that they can be compared with each other.

    Raises:
        OSError: `out` cannot be written. DumpError, NewerSchemaError: as `recover`.
    """
    return [_RunCopy(run, whole, out, advance).make() for run in runs]


@dataclass(frozen=True, slots=True)
class _Made:
    """A line for the ledger, made from a text. `place` orders it: attempt and call."""

    place: tuple[int, int]
    line: bytes
    source: DumpFile


class _RunCopy:
    """Makes the copy of one run."""

    def __init__(self, run: Run, whole: bool, out: Path, advance: Watch | None) -> None:
        self.run = run
        self.whole = whole
        self.out = out
        self.advance = advance
        self.report = Recovery(run.run_id)
        self.settings = settings_of(run.manifest)
        self.known: dict[str, int] = {}
        """Digests of the groups in the damaged ledger."""
        self.texts: set[str] = set()
        self.made: dict[str, _Made] = {}
        """Lines of groups that are missing from the ledger, or differ in it."""
        self.in_ledger: set[str] = set()
        """The groups in the ledger of the copy."""

    def make(self) -> Recovery:
        """Read the damaged ledger, copy the texts, then write a ledger that matches them."""
        for file in self.run.files_of(FileKind.LEDGER):
            for _, record in self._records(file, LedgerRecord, first_pass=True):
                self.known.setdefault(record.group_id, hash(to_line(record.without_place())))
        for kind in FileKind:
            if kind.holds_text:
                self._copy_texts(kind)
        self._copy_ledger()
        self._copy_trained()
        self._copy_levels()
        manifest = self.run.files[0].path.with_name(manifest_name(self.run.run_id))
        if self.run.manifest is not None:
            shutil.copyfile(manifest, self.out / manifest.name)
        elif os.path.lexists(manifest):
            self.report.changes.add(Change.MANIFEST_LOST, manifest.name, 0, "not a JSON object: left out")
        return self.report

    def _copy_texts(self, kind: FileKind) -> None:
        copy = _Copy(self.out, kind, self.run.run_id, _NO_LIMIT, self.report)
        for file in self.run.files_of(kind):
            for raw, group in self._records(file, GroupRecord):
                if group.schema_version and group.group_id in self.texts:
                    self._add(Change.DUPLICATE, file, f"dropped a second text of group {group.group_id}")
                    continue
                if group.schema_version:
                    line = to_line(LedgerRecord.of(group, kind, None))
                    if self.whole and self.known.get(group.group_id) != hash(line):
                        if wrong := self._contradiction(group, kind):
                            self._add(Change.DAMAGED, file, f"left out the text of group {group.group_id}: {wrong}")
                            self.report.damaged_texts += 1
                            continue
                        self.made[group.group_id] = _Made((group.attempt, group.call), line.rstrip(b"\n"), file)
                    self.texts.add(group.group_id)
                copy.write(raw)
                self.report.texts += 1
            copy.end_file(file)

    def _contradiction(self, group: GroupRecord, kind: FileKind) -> str | None:
        """How a text contradicts the settings of its run, as one that lost bytes but is still JSON may."""
        settings = self.settings.get(group.attempt)
        if settings is None:
            return None
        return next(wrong_numbers(group, settings), None) or wrong_file(group, kind, settings)

    def _copy_ledger(self) -> None:
        """Copy the intact lines, with missing ones inserted after the lines of earlier calls."""
        limit = batch_limit(self.settings, FileKind.LEDGER) or _NO_LIMIT
        copy = _Copy(self.out, FileKind.LEDGER, self.run.run_id, limit, self.report)
        missing = [(made.place, group_id) for group_id, made in self.made.items() if group_id not in self.known]
        in_order = deque(sorted(missing, key=lambda one: one[0]))  # within a call, in the order of the texts
        files = self.run.files_of(FileKind.LEDGER)
        for file in files:
            for raw, record in self._records(file, LedgerRecord):
                if record.group_id in self.in_ledger:
                    self._add(Change.DUPLICATE, file, f"dropped a second line of group {record.group_id}")
                    continue
                while in_order and in_order[0][0] < (record.attempt, record.call):
                    self._write_missing(copy, in_order.popleft()[1])
                self._write_ledger(copy, record.group_id, self._fitting(file, raw, record))
            if file is not files[-1]:
                copy.end_file(file)
        for _, group_id in in_order:
            self._write_missing(copy, group_id)
        if files:
            copy.end_file(files[-1])
        else:
            copy.end()

    def _write_missing(self, copy: _Copy, group_id: str) -> None:
        made = self.made[group_id]
        self._add(Change.LEDGER_MADE, made.source, f"made the ledger line of group {group_id}")
        self._write_ledger(copy, group_id, made.line)

    def _write_ledger(self, copy: _Copy, group_id: str, line: bytes) -> None:
        copy.write(line)
        self.in_ledger.add(group_id)
        self.report.ledger_lines += 1

    def _fitting(self, file: DumpFile, raw: bytes, record: LedgerRecord) -> bytes:
        """The ledger line that matches the available texts."""
        if (made := self.made.get(record.group_id)) is not None:
            self._add(Change.LEDGER_REPLACED, file, f"made the line of group {record.group_id} again from its text")
            return made.line
        if self.whole and record.text is not None and record.group_id not in self.texts:
            self._add(Change.TEXT_LOST, file, f"the text of group {record.group_id} is lost, its numbers are kept")
            return to_line(replace(record, text=None, text_reason=NotKept.LOST)).rstrip(b"\n")
        return raw

    def _copy_trained(self) -> None:
        copy = _Copy(self.out, FileKind.TRAINED, self.run.run_id, _NO_LIMIT, self.report)
        order = TrainedOrder()
        for file in self.run.files_of(FileKind.TRAINED):
            for raw, record in self._records(file, TrainedRecord):
                what = f"group {record.group_id} in step {record.step}"
                if order.repeats(record):
                    self._add(Change.DUPLICATE, file, f"dropped a second line of {what}")
                elif self.whole and record.group_id not in self.in_ledger:
                    self._add(Change.UNKNOWN_GROUP, file, f"dropped {what}: nothing else is left of it")
                else:
                    copy.write(raw)
                    self.report.trained += 1
            copy.end_file(file)

    def _copy_levels(self) -> None:
        copy = _Copy(self.out, FileKind.LEVELS, self.run.run_id, _NO_LIMIT, self.report)
        order = LevelOrder()
        for file in self.run.files_of(FileKind.LEVELS):
            for raw, record in self._records(file, LevelRecord):
                if order.repeats(record):
                    self._add(Change.DUPLICATE, file, f"dropped a second line of a move of {record.task}")
                else:
                    copy.write(raw)
                    self.report.levels += 1
            copy.end_file(file)

    def _records(self, file: DumpFile, of: type[_R], first_pass: bool = False) -> Iterator[tuple[bytes, _R]]:
        """All whole records of a file, with their bytes; damage is reported, except in the first pass."""
        for line in lines_in(file, None if first_pass else self.advance, strict=True):
            saved, lost = [line], 0
            if line.fault is not None:
                saved, lost = salvage(line)
            for whole in saved:
                assert isinstance(whole.record, of)
                yield whole.raw, whole.record
            if not first_pass:
                self._report_damage(line, len(saved), lost)

    def _report_damage(self, line: Line, saved: int, lost: int) -> None:
        if isinstance(line.fault, UnreadableError):
            self._add(Change.UNREADABLE, line.file, str(line.fault), line.number)
        elif line.fault is None and not line.ended:
            self._add(Change.LINE_FEED, line.file, "ended the last line", line.number)
        elif line.fault is not None and (saved or not lost):
            what = f"took {saved} whole record{'s'[: saved != 1]} out of a damaged line"
            self._add(Change.SAVED, line.file, what, line.number)
        if lost:
            self._add(Change.DAMAGED, line.file, f"left out {lost} bytes ({line.fault})", line.number)
            if line.file.kind.holds_text:
                self.report.damaged_texts += 1
            elif line.file.kind is FileKind.LEDGER:
                self.report.damaged_ledger += 1

    def _add(self, change: Change, file: DumpFile, what: str, number: int = 0) -> None:
        self.report.changes.add(change, file.path.name, number, what)


class _Copy:
    """The files of one kind in the copy. They end where the originals end, unless added lines overfill one."""

    def __init__(self, out: Path, kind: FileKind, run_id: str, limit: int, report: Recovery) -> None:
        self._batch = Batch(out, kind, run_id, limit)
        self._report = report

    def write(self, line: bytes) -> None:
        if self._batch.is_full:
            self._batch.finish()
        self._batch.prepare()
        self._batch.append([line + b"\n"])

    def end_file(self, file: DumpFile) -> None:
        """Finish the copy of an original."""
        name = file.path.name
        copy = self._batch.finish()
        if copy is None:
            self._report.changes.add(Change.EMPTY, name, 0, "left out: no whole record in it")
            return
        if file.compressed:
            copy = compress(copy)
        if copy.name != name:
            self._report.changes.add(Change.RENAMED, name, 0, f"is {copy.name} in the copy")

    def end(self) -> None:
        self._batch.finish()
