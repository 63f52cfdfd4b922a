"""Checks a dump: each line, the files against each other, and both against the manifest.

Invariant: it only reads. Everything that our runs can write passes, including a run that was killed at any moment and
resumed. Memory does not grow with the texts: id, digest and place of each group of the current run are kept (about 400
bytes), and the findings are bounded.

Not covered: the files of a run that is being written are not compared with each other, because they change while they
are read.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rg_env.dump.codec import Record, to_line, wire_of
from rg_env.dump.files import DumpFile, manifest_name, parse_name
from rg_env.dump.line_check import FaultyRecordError
from rg_env.dump.lock import is_held
from rg_env.dump.read.chunks import Watch, size_of
from rg_env.dump.read.dump import Run, open_run
from rg_env.dump.read.lines import Line, UnreadableError, lines_in
from rg_env.dump.repair.findings import Findings
from rg_env.dump.repair.order import GroupOrder, LevelOrder, TrainedOrder
from rg_env.dump.repair.settings_check import wrong_file, wrong_numbers, wrong_reason
from rg_env.dump.repair.trouble import Trouble
from rg_env.dump.run_settings import batch_limit, settings_of
from rg_env.dump.schema import FileKind, GroupRecord, LedgerRecord, LevelRecord, TrainedRecord

_R = TypeVar("_R", GroupRecord, LedgerRecord, TrainedRecord, LevelRecord)


@dataclass
class Validation:
    """What was read and what was found.

    Attributes:
        remarks: what could not be checked, one sentence each; these are not errors.
        texts: groups with their text, including `atropos`, the groups in Atropos' format.
        ledger_lines: groups in ledgers.
        trained: groups in the training batches of steps.
        levels: moves of levels.
    """

    findings: Findings[Trouble] = field(default_factory=Findings)
    remarks: list[str] = field(default_factory=list)
    runs: int = 0
    texts: int = 0
    ledger_lines: int = 0
    trained: int = 0
    levels: int = 0
    atropos: int = 0

    @property
    def good(self) -> bool:
        return not self.findings.total


def validate(*paths: str | Path, advance: Watch | None = None) -> Validation:
    """Check dumps.

    Args:
        paths: dump folders, and single files. A single file is not compared with others.
        advance: called with the bytes read since the last call.

    Raises:
        DumpError: a path has no dump, or a file cannot be opened.
        NewerSchemaError: a file needs a later version of rg_env.
    """
    result = Validation()
    for path in map(Path, paths):
        for run in open_run(path).runs:
            result.runs += 1
            _RunCheck(run, path.is_dir(), result, advance).check()
    return result


def bytes_in(*paths: str | Path) -> int:
    """Number of bytes that `validate` will read.

    Raises:
        DumpError: a path has no dump.
    """
    return sum(size_of(file) for path in paths for run in open_run(path).runs for file in run.files)


@dataclass(frozen=True, slots=True)
class _Text:
    """Where the text of a group is, and a digest of its ledger line."""

    file: DumpFile
    number: int
    digest: int

    def __str__(self) -> str:
        return f"{self.file.path.name}, line {self.number}"


class _RunCheck:
    """The checks of one run.

    Args:
        whole: whether `run` has all its files, so that they can be compared with each other.
    """

    def __init__(self, run: Run, whole: bool, result: Validation, advance: Watch | None) -> None:
        self.run = run
        self.files = sorted(run.files, key=lambda file: (file.kind, file.batch, file.part))
        self.result = result
        self.found = result.findings
        self.advance = advance
        self.folder = run.files[0].path.parent
        self.live = whole and is_held(self.folder, run.run_id)
        self.whole = whole and not self.live
        self.settings = settings_of(run.manifest)
        self.texts: dict[str, _Text] = {}
        self.unknown_attempts: set[int] = set()

    def check(self) -> None:
        if self.live:
            self._remark("is being written now: only its finished files were checked, each one alone")
        self._check_manifest()
        if self.whole:
            self._check_names()
        for kind in FileKind:
            if kind.holds_text:
                self._check_texts(kind)
        self._check_trained(self._check_ledger())
        self._check_levels()

    # -- names

    def _check_manifest(self) -> None:
        path = self.folder / manifest_name(self.run.run_id)
        if self.run.manifest is None and os.path.lexists(path):
            self.found.add(Trouble.MANIFEST, path.name, 0, "not a JSON object")
        elif self.run.manifest is None and any(parse_name(file.path) for file in self.files):
            self._remark("has no manifest: its settings could not be checked")

    def _check_names(self) -> None:
        expected: dict[FileKind, int] = {}
        for file in self.files:
            due = expected.get(file.kind, 0)
            if file.batch > due:
                missing = f"{due:04d}" if file.batch == due + 1 else f"{due:04d} to {file.batch - 1:04d}"
                self.found.add(Trouble.GAP, file.path.name, 0, f"batch {missing} before it is missing")
            elif file.batch < due:
                self.found.add(Trouble.DUPLICATE, file.path.name, 0, f"there are two files of batch {file.batch:04d}")
            expected[file.kind] = file.batch + 1
            if file.part:
                self.found.add(Trouble.UNFINISHED, file.path.name, 0, "left behind by a run that exited uncleanly")

    # -- lines

    def _check_texts(self, kind: FileKind) -> None:
        order, atropos = GroupOrder(), 0
        for line, group in self._records(kind, GroupRecord):
            self.result.texts += 1
            if not group.schema_version:
                atropos += 1
                continue
            if (first := self.texts.get(group.group_id)) is not None:
                self._add(Trouble.DUPLICATE, line, f"group {group.group_id} again, first in {first}")
            else:
                digest = _digest(LedgerRecord.of(group, kind, None))
                self.texts[group.group_id] = _Text(line.file, line.number, digest)
            if misplaced := wrong_file(group, kind, self.settings.get(group.attempt)):
                self._add(Trouble.WRONG_FILE, line, misplaced)
            self._check_group(line, group, order)
        if atropos and not self.result.atropos:
            self._remark("is in Atropos' format: only item_id, rollouts, conversation and score could be checked")
        self.result.atropos += atropos

    def _check_ledger(self) -> Container[str]:
        """Returns the groups in the ledger."""
        lines: dict[str, tuple[str, int]] = {}
        order = GroupOrder()
        for line, record in self._records(FileKind.LEDGER, LedgerRecord):
            self.result.ledger_lines += 1
            if record.group_id in lines:
                name, number = lines[record.group_id]
                self._add(Trouble.DUPLICATE, line, f"group {record.group_id} again, first in {name}, line {number}")
                continue
            lines[record.group_id] = line.file.path.name, line.number
            self._check_group(line, record, order)
            settings = self.settings.get(record.attempt)
            if settings is not None and (what := wrong_reason(record, settings)):
                self._add(Trouble.SETTINGS, line, what)
            if self.whole:
                self._check_against_text(line, record)
        if self.whole:
            for group_id, text in self.texts.items():
                if group_id not in lines:
                    what = f"group {group_id} is not in the ledger"
                    self.found.add(Trouble.NO_LEDGER_LINE, text.file.path.name, text.number, what)
        return lines

    def _check_trained(self, groups: Container[str]) -> None:
        order = TrainedOrder()
        for line, record in self._records(FileKind.TRAINED, TrainedRecord):
            self.result.trained += 1
            self._check_run(line, record)
            if (back := order.goes_back(record)) is not None:
                self._add(Trouble.ORDER, line, back)
            if order.repeats(record):
                self._add(Trouble.DUPLICATE, line, f"group {record.group_id} again in step {record.step}")
            if self.whole and record.group_id not in groups:
                self._add(Trouble.UNKNOWN_GROUP, line, f"group {record.group_id} is not in the ledger")

    def _check_levels(self) -> None:
        order = LevelOrder()
        for line, record in self._records(FileKind.LEVELS, LevelRecord):
            self.result.levels += 1
            self._check_run(line, record)
            settings = self.settings.get(record.attempt)
            if (back := order.goes_back(record, in_order=settings is None or not settings.overlapping)) is not None:
                self._add(Trouble.ORDER, line, back)
            if order.repeats(record):
                self._add(Trouble.DUPLICATE, line, f"the same move of {record.task} again")

    def _check_group(self, line: Line, record: GroupRecord | LedgerRecord, order: GroupOrder) -> None:
        """Checks of both a group's text and its ledger line."""
        self._check_run(line, record)
        settings = self.settings.get(record.attempt)
        back = order.goes_back(record, in_order=settings is None or not settings.overlapping)
        if back is not None:
            self._add(Trouble.ORDER, line, back)
        if settings is not None:
            for what in wrong_numbers(record, settings):
                self._add(Trouble.SETTINGS, line, what)
        elif self.settings and record.attempt not in self.unknown_attempts:
            self.unknown_attempts.add(record.attempt)
            self._add(Trouble.SETTINGS, line, f"the manifest has no attempt {record.attempt}")

    def _check_run(self, line: Line, record: Record) -> None:
        if parse_name(line.file.path) and record.run_id != line.file.run_id:
            self._add(Trouble.WRONG_FILE, line, f"of run {record.run_id}")

    def _check_against_text(self, line: Line, record: LedgerRecord) -> None:
        text = self.texts.get(record.group_id)
        if record.text is None:
            if text is not None:
                what = f"the ledger says that the text was not kept ({record.text_reason}), but it is in {text}"
                self._add(Trouble.DISAGREEMENT, line, what)
        elif text is None:
            self._add(Trouble.NO_TEXT, line, f"the text of group {record.group_id} is in no {record.text} file")
        elif text.digest != _digest(record):
            self._add(Trouble.DISAGREEMENT, line, f"differs from {text} in {', '.join(_differences(text, record))}")

    def _records(self, kind: FileKind, of: type[_R]) -> Iterator[tuple[Line, _R]]:
        """The whole records of the files of a kind; everything else in them becomes a finding."""
        for file in self.files:
            if file.kind is not kind or (self.live and file.part):
                continue
            line = None
            for line in lines_in(file, self.advance, strict=True):
                if line.fault is None:
                    assert isinstance(line.record, of)
                    yield line, line.record
                    if not line.ended:
                        self._add(Trouble.DAMAGED, line, "the file ends without a line feed")
                else:
                    contradicts = isinstance(line.fault, FaultyRecordError)
                    self._add(Trouble.CONTRADICTION if contradicts else Trouble.DAMAGED, line, str(line.fault))
            limit = batch_limit(self.settings, kind)
            if line is None:
                self.found.add(Trouble.EMPTY, file.path.name, 0, "is empty")
            elif limit is not None and line.number > limit and not isinstance(line.fault, UnreadableError):
                what = f"{line.number} lines; the manifest allows {limit} in a file"
                self.found.add(Trouble.OVERFULL, file.path.name, 0, what)

    def _add(self, trouble: Trouble, line: Line, what: str) -> None:
        self.found.add(trouble, line.file.path.name, line.number, what)

    def _remark(self, what: str) -> None:
        self.result.remarks.append(f"run {self.run.run_id} {what}")


def _digest(record: LedgerRecord) -> int:
    """Equal for equal numbers, regardless of white space in their lines. 64 bits, so collisions are unlikely."""
    return hash(to_line(record.without_place()))


def _differences(text: _Text, record: LedgerRecord) -> list[str]:
    """The keys in which a text and its ledger line differ."""
    group = next(line.record for line in lines_in(text.file) if line.number == text.number)
    assert isinstance(group, GroupRecord)
    mine = wire_of(to_line(LedgerRecord.of(group, text.file.kind, None)))
    other = wire_of(to_line(record.without_place()))
    return [f"`{key}`" for key in mine if mine[key] != other[key]]
