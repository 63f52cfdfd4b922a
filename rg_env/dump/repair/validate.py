"""Checks what readers of a dump rely on: each line, the files against each other.

Invariant: it only reads. Everything that our runs can write passes, including a run that was killed at any moment and
resumed. Memory does not grow with the texts: a digest and the place of each group of the current run are kept, and the
number of findings that are listed is bounded.

Not covered: what only a change by hand can cause, and the files of a run that is being written, which are not compared
with each other, because they change while they are read.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Self

import msgspec

from rg_env.dump.codec import ledger_line, to_line
from rg_env.dump.files import DumpFile, manifest_name, parse_name
from rg_env.dump.lock import is_held
from rg_env.dump.read.dump import open_run
from rg_env.dump.read.lines import Line, lines_in
from rg_env.dump.read.runs import Run
from rg_env.dump.schema import (
    RG_DUMP,
    TEXT_KINDS,
    FileKind,
    GroupFacts,
    GroupRecord,
    LedgerRecord,
    Record,
    RolloutFacts,
    TrainedRecord,
    answered,
    has_no_signal,
)
from rg_env.scoring.base_score import base_score
from rg_env.scoring.types import Status

MAX_KEPT = 1000
"""Findings that are listed one by one."""
_ASK = "find out who changed the files; `rg-env dumps rescore` shows what the numbers would be"
_RESUME = "readers read it; resuming the run finishes it"


class Trouble(StrEnum):
    """A kind of finding. `advice` says what to do about one."""

    advice: str

    def __new__(cls, value: str, advice: str) -> Self:
        kind = str.__new__(cls, value)
        kind._value_, kind.advice = value, advice
        return kind

    DAMAGED = "damaged_line", "readers skip it"
    CONTRADICTION = "contradiction", _ASK
    DUPLICATE = "duplicate", "remove the second one, or the file that was copied"
    NO_LEDGER_LINE = "no_ledger_line", "resuming the run adds it"
    NO_TEXT = "no_text", "look for the missing file"
    DISAGREEMENT = "disagreement", _ASK
    UNKNOWN_GROUP = "unknown_group", "look for the missing file"
    GAP = "gap", "look for the missing file"
    UNFINISHED = "unfinished", _RESUME
    MANIFEST = "manifest", "restore it from a backup; without it the settings of the run are unknown"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that was found.

    Attributes:
        file: the file's name.
        line: from 1; 0 if it concerns the whole file.
    """

    kind: Trouble
    file: str
    line: int
    what: str

    def __str__(self) -> str:
        place = f"{self.file}, line {self.line}" if self.line else self.file
        return f"{place}: {self.what} ({self.kind.advice})"


@dataclass
class Validation:
    """What was read and what was found.

    Attributes:
        kept: the first `MAX_KEPT` findings.
        counts: of all findings, by kind.
        remarks: what could not be checked, one sentence each; these are not errors.
        texts: groups with their text.
        ledger_lines, trained: records of these kinds.
    """

    kept: list[Fault] = field(default_factory=list)
    counts: Counter[Trouble] = field(default_factory=Counter)
    remarks: list[str] = field(default_factory=list)
    runs: int = 0
    records: Counter[FileKind] = field(default_factory=Counter)

    @property
    def good(self) -> bool:
        return not self.counts

    @property
    def total(self) -> int:
        """Number of findings."""
        return self.counts.total()

    @property
    def texts(self) -> int:
        """Number of groups with their text."""
        return sum(self.records[kind] for kind in TEXT_KINDS)

    @property
    def ledger_lines(self) -> int:
        return self.records[FileKind.LEDGER]

    def add(self, kind: Trouble, file: DumpFile | Path, line: int, what: str) -> None:
        """Add a finding."""
        self.counts[kind] += 1
        if len(self.kept) < MAX_KEPT:
            self.kept.append(Fault(kind, (file.path if isinstance(file, DumpFile) else file).name, line, what))


def validate(*paths: str | Path) -> Validation:
    """Check dumps.

    Args:
        paths: dump folders, and single files. A single file is not compared with others.

    Raises:
        DumpError: a path has no dump, or a file cannot be opened.
        NewerSchemaError: a file needs a later version of rg_env.
    """
    result = Validation()
    for path in map(Path, paths):
        for run in open_run(path).runs:
            result.runs += 1
            _RunCheck(run, path.is_dir(), result).check()
    return result


class _RunCheck:
    """The checks of one run.

    Args:
        whole: whether `run` has all its files, so that they can be compared with each other.
    """

    def __init__(self, run: Run, whole: bool, result: Validation) -> None:
        self.run = run
        self.result = result
        self.folder = run.files[0].path.parent
        self.live = whole and is_held(self.folder, run.run_id)
        self.whole = whole and not self.live
        self.texts: dict[str, tuple[int, Line]] = {}
        self.groups: set[str] = set()

    def check(self) -> None:
        self._check_files()
        trained: set[int] = set()
        for kind in (*TEXT_KINDS, FileKind.LEDGER, FileKind.TRAINED):  # each refers to earlier ones
            for file in self.run.files_of(kind):
                for line, record in self._records(file):
                    self.result.records[kind] += 1
                    if isinstance(record, GroupRecord):
                        self._check_text(line, record)
                    elif isinstance(record, LedgerRecord):
                        self._check_ledger_line(line, record)
                    elif isinstance(record, TrainedRecord):
                        self._check_trained(line, record, trained)
        if self.whole:
            for group_id, (_, line) in self.texts.items():
                if group_id in self.groups:
                    continue
                self._add(Trouble.NO_LEDGER_LINE, line, f"group {group_id} is not in the ledger")

    def _check_files(self) -> None:
        path = self.folder / manifest_name(self.run.run_id)
        if self.run.manifest is None and os.path.lexists(path):
            self.result.add(Trouble.MANIFEST, path, 0, "not a JSON object")
        elif self.run.manifest is None and any(parse_name(file.path) for file in self.run.files):
            self._remark("has no manifest: the settings of the run are unknown")
        if self.live:
            self._remark("is being written now: only its finished files were checked, each one alone")
        for path, remark in self.run.copies:
            self.result.add(Trouble.DUPLICATE, path, 0, remark)
        due: Counter[FileKind] = Counter()
        for file in self.run.files if self.whole else ():
            if file.batch > due[file.kind]:
                missing = f"batch {due[file.kind]:04d} or more before it are missing"
                self.result.add(Trouble.GAP, file, 0, missing)
            elif file.batch < due[file.kind]:
                self.result.add(Trouble.DUPLICATE, file, 0, f"there are two files of batch {file.batch:04d}")
            due[file.kind] = file.batch + 1
            if file.part:
                self.result.add(Trouble.UNFINISHED, file, 0, "left behind by a run that exited uncleanly")

    def _records(self, file: DumpFile) -> Iterator[tuple[Line, Record]]:
        """The sound records of a file; everything else in it becomes a finding."""
        if self.live and file.part:
            return
        for line in lines_in(file):
            if line.record is None:
                self._add(Trouble.DAMAGED, line, str(line.fault))
                continue
            if not line.ended:
                self._add(Trouble.DAMAGED, line, "the file ends without a line feed")
            if isinstance(line.record, (GroupRecord, LedgerRecord)) and (what := contradiction(line.record)):
                self._add(Trouble.CONTRADICTION, line, what)
            yield line, line.record

    def _check_text(self, line: Line, group: GroupRecord) -> None:
        if group.group_id in self.texts:
            _, first = self.texts[group.group_id]
            what = f"group {group.group_id} again, first in {first.file.path.name}, line {first.number}"
            self._add(Trouble.DUPLICATE, line, what)
        else:
            digest = hash(ledger_line(group, line.file.kind))
            self.texts[group.group_id] = digest, Line(line.file, line.number, line.offset, b"", None)

    def _check_ledger_line(self, line: Line, record: LedgerRecord) -> None:
        if record.group_id in self.groups:
            self._add(Trouble.DUPLICATE, line, f"group {record.group_id} again")
            return
        self.groups.add(record.group_id)
        if not self.whole:
            return
        if record.group_id not in self.texts:
            if record.text:
                self._add(Trouble.NO_TEXT, line, f"the text of group {record.group_id} is in no {record.text} file")
            return
        digest, text = self.texts[record.group_id]
        place = f"{text.file.path.name}, line {text.number}"
        if not record.text:
            what = f"the ledger says that the text was not kept ({record.text_reason}), but it is in {place}"
            self._add(Trouble.DISAGREEMENT, line, what)
        elif digest != _digest(record):
            self._add(Trouble.DISAGREEMENT, line, f"differs from {place}")
        elif record.text_batch is not None and (record.text_batch, record.text_offset) != (
            text.file.batch,
            text.offset,
        ):
            there = f"{record.text_offset} of batch {record.text_batch}"
            self._add(Trouble.DISAGREEMENT, line, f"says that the text is at byte {there}, but it is in {place}")

    def _check_trained(self, line: Line, record: TrainedRecord, seen: set[int]) -> None:
        key = hash((record.attempt, record.step, record.group_id))
        if key in seen:
            self._add(Trouble.DUPLICATE, line, f"group {record.group_id} again in step {record.step}")
        seen.add(key)
        if self.whole and record.group_id not in self.groups:
            self._add(Trouble.UNKNOWN_GROUP, line, f"group {record.group_id} is not in the ledger")

    def _add(self, kind: Trouble, line: Line, what: str) -> None:
        self.result.add(kind, line.file, line.number, what)

    def _remark(self, what: str) -> None:
        self.result.remarks.append(f"run {self.run.run_id} {what}")


def _digest(record: LedgerRecord) -> int:
    """Equal for equal numbers, regardless of white space in their lines. 64 bits, so collisions are unlikely."""
    return hash(to_line(msgspec.structs.replace(record, text_batch=None, text_offset=None)))


# -- values that contradict each other

_CLOSE = 1e-9
_SHARES_OF_GROUP = ("complexity", "baseline")
_SHARES_OF_ROLLOUT = ("score", "base_score", "raw_score", "tagged_score", "penalty_factor")


def contradiction(group: GroupRecord | LedgerRecord) -> str:
    """What no run can have written, or ""."""
    if group.environment == RG_DUMP:
        if what := _outside(group, _SHARES_OF_GROUP):
            return what
        for number, rollout in enumerate(group.rollouts):
            if what := _outside(rollout, _SHARES_OF_ROLLOUT) or _contradiction_of_scores(group, rollout):
                return f"rollout {number}: {what}"
    rewards = [rollout.reward for rollout in answered(group.rollouts)]
    if all(map(math.isfinite, rewards)) and group.no_signal != has_no_signal(rewards):
        return f"`no_signal` is {group.no_signal}, which does not fit its rewards"
    if isinstance(group, LedgerRecord) and bool(group.text) == bool(group.text_reason):
        return "has both `text` and `text_reason`, or neither"
    return ""


def _outside(record: GroupFacts | RolloutFacts, names: Sequence[str]) -> str:
    for name in names:
        value = getattr(record, name)
        if value is not None and not 0 <= value <= 1:  # NaN, too
            return f"`{name}` is {value}, outside [0, 1]"
    return ""


def _contradiction_of_scores(group: GroupFacts, rollout: RolloutFacts) -> str:
    raw, tagged, base = rollout.raw_score, rollout.tagged_score, rollout.base_score
    if rollout.violation and rollout.status is Status.NO_RESPONSE:
        return "has a violation although there is no response"
    if rollout.violation or rollout.status not in (Status.OK, Status.REWARD_ERROR):
        if base != 0 or raw is not None or tagged is not None:
            return "has scores although nothing was scored"
    elif raw is None or tagged is None:
        return "has no scores, and neither a violation nor a status explains it"
    else:
        right = base_score(group.task, raw, tagged, group.baseline)
        as_upstream = max(raw, tagged) if group.baseline == 0 else right  # scorer.partial_credit=upstream
        if not any(math.isclose(base, score, abs_tol=_CLOSE) for score in (right, as_upstream)):
            return f"`base_score` is {base}, not {right:g}: raw {raw}, tagged {tagged}, baseline {group.baseline}"
    if not math.isclose(rollout.score, base * rollout.penalty_factor, abs_tol=_CLOSE):
        return f"`score` is {rollout.score}, not {base} × {rollout.penalty_factor}"
    return ""
