"""Checks what readers of a dump rely on: each line, the files against each other, how the run ended.

It only reads. What our runs can write passes, also when they were killed and resumed. Memory does not grow with the
texts: a digest of each group of the current run is kept. Files of a run that is being written are not compared.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rg_env.dump.files import Line, is_held, lines_in, manifest_name, parse_name
from rg_env.dump.reader import open_run
from rg_env.dump.runs import Run
from rg_env.dump.schema import (
    RG_DUMP,
    TEXT_KINDS,
    FileKind,
    GroupRecord,
    LedgerRecord,
    RolloutFacts,
    TrainedRecord,
    answered,
    has_no_signal,
    ledger_line,
    to_line,
)
from rg_env.scoring.base_score import base_score
from rg_env.scoring.types import Status

MAX_KEPT = 1000
"""Findings that are listed one by one."""
ADVICE = {
    "damaged_line": "readers skip it",
    "contradiction": "find out who changed the files; `rg-env dumps rescore` shows what the numbers would be",
    "duplicate": "remove the second one, or the file that was copied",
    "no_ledger_line": "resuming the run adds it",
    "no_text": "look for the missing file",
    "unknown_group": "look for the missing file",
    "gap": "look for the missing file",
    "unfinished": "resume the run; readers read it as it is",
    "groups_missing": "they are lost: the disk failed or was full",
    "running": "wait until it has ended",
    "no_regular_end": "resume the run, or bear in mind that it did not end",
    "manifest": "restore it from a backup; without it the settings of the run are unknown",
}
"""What to do about each kind of finding."""
_CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that was found: of which kind (`ADVICE`), in which file and line; 0: it concerns the whole file."""

    kind: str
    file: str
    line: int
    what: str

    def __str__(self) -> str:
        place = f"{self.file}, line {self.line}" if self.line else self.file
        return f"{place}: {self.what} ({ADVICE[self.kind]})"


@dataclass
class Validation:
    """What was read, by kind of file, and what was found: `kept` has the first `MAX_KEPT` faults, `counts` counts all
    of them by kind; `remarks` say what could not be checked, which is no fault.
    """

    kept: list[Fault] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    remarks: list[str] = field(default_factory=list)
    runs: int = 0
    records: Counter[FileKind] = field(default_factory=Counter)

    @property
    def good(self) -> bool:
        return not self.counts

    @property
    def texts(self) -> int:
        """Number of groups with their text."""
        return sum(self.records[kind] for kind in TEXT_KINDS)

    def add(self, kind: str, file: str, line: int, what: str) -> None:
        self.counts[kind] += 1
        if len(self.kept) < MAX_KEPT:
            self.kept.append(Fault(kind, file, line, what))


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
            live = path.is_dir() and is_held(run.files[0].path.parent, run.run_id)
            if live:
                result.remarks.append(f"run {run.run_id} is being written now: only its finished files were checked")
            _check_files(run, result, whole=path.is_dir() and not live)
            _check_lines(run, result, whole=path.is_dir() and not live, live=live)
    return result


def _check_files(run: Run, result: Validation, *, whole: bool) -> None:
    path = run.files[0].path.parent / manifest_name(run.run_id)
    if run.manifest is None and os.path.lexists(path):
        result.add("manifest", path.name, 0, "not a JSON object")
    elif run.manifest is None and any(parse_name(file.path) for file in run.files):
        result.remarks.append(f"run {run.run_id} has no manifest: its settings are unknown")
    for path, what in run.copies:
        result.add("duplicate", path.name, 0, what)
    if not whole:
        return
    for what in run.missing_files(FileKind):
        result.add("gap", f"run {run.run_id}", 0, what)
    for kind, what in run.how_it_ended().items():
        result.add(kind, f"run {run.run_id}", 0, what)
    for file in run.files:
        if file.is_open:
            result.add("unfinished", file.path.name, 0, "left behind by a run that was killed")


def _check_lines(run: Run, result: Validation, *, whole: bool, live: bool) -> None:
    """Check each line, and of a whole dump what lines say about each other."""
    texts: dict[str, tuple[int, str, int]] = {}  # digest of the ledger line that the text needs, and its place
    groups: set[str] = set()
    trained: set[tuple[int, int, str]] = set()
    for line in _sound_lines(run, result, live):
        record, file, number = line.record, line.file.path.name, line.number
        if isinstance(record, GroupRecord):
            if record.group_id in texts:
                _, first, at = texts[record.group_id]
                result.add("duplicate", file, number, f"group {record.group_id} again, first in {first}, line {at}")
            else:
                texts[record.group_id] = hash(ledger_line(record, line.file.kind)), file, number
        elif isinstance(record, LedgerRecord):
            if record.group_id in groups:
                result.add("duplicate", file, number, f"group {record.group_id} again")
            elif whole and record.group_id in texts:
                digest, first, at = texts[record.group_id]
                if hash(to_line(record)) != digest:
                    result.add("contradiction", file, number, f"differs from its text in {first}, line {at}")
            elif whole and record.text:
                result.add("no_text", file, number, f"the text of group {record.group_id} is in no {record.text} file")
            groups.add(record.group_id)
        elif isinstance(record, TrainedRecord):
            key = record.attempt, record.step, record.group_id
            if key in trained:
                result.add("duplicate", file, number, f"group {record.group_id} again in step {record.step}")
            elif whole and record.group_id not in groups:
                result.add("unknown_group", file, number, f"group {record.group_id} is not in the ledger")
            trained.add(key)
    for group_id, (_, file, number) in texts.items() if whole else ():
        if group_id not in groups:
            result.add("no_ledger_line", file, number, f"group {group_id} is not in the ledger")


def _sound_lines(run: Run, result: Validation, live: bool) -> Iterator[Line]:
    """The lines that are records, those first to which others refer; everything else becomes a fault."""
    for kind in (*TEXT_KINDS, FileKind.LEDGER, FileKind.TRAINED, FileKind.STEPS):
        for line in (line for file in run.files_of(kind) if not (live and file.is_open) for line in lines_in(file)):
            file, number, record = line.file.path.name, line.number, line.record
            if record is None:
                result.add("damaged_line", file, number, str(line.fault))
                continue
            if not line.raw.endswith(b"\n"):
                result.add("damaged_line", file, number, "the file ends without a line feed")
            if isinstance(record, (GroupRecord, LedgerRecord)) and (what := contradiction(record)):
                result.add("contradiction", file, number, what)
            result.records[kind] += 1
            yield line


def contradiction(group: GroupRecord | LedgerRecord) -> str:
    """What no run can have written, or ""."""
    for number, rollout in enumerate(group.rollouts) if group.environment == RG_DUMP else ():
        if what := _contradiction_of_scores(group, rollout):
            return f"rollout {number}: {what}"
    rewards = [rollout.reward for rollout in answered(group.rollouts)]
    if all(map(math.isfinite, rewards)) and group.no_signal != has_no_signal(rewards):
        return f"`no_signal` is {group.no_signal}, which does not fit its rewards"
    if isinstance(group, LedgerRecord) and bool(group.text) == bool(group.text_reason):
        return "has both `text` and `text_reason`, or neither"
    return ""


def _contradiction_of_scores(group: GroupRecord | LedgerRecord, rollout: RolloutFacts) -> str:
    raw, tagged, base = rollout.raw_score, rollout.tagged_score, rollout.base_score
    shares = {"baseline": group.baseline, "complexity": group.complexity, "penalty_factor": rollout.penalty_factor}
    shares |= {"score": rollout.score, "base_score": base, "raw_score": raw, "tagged_score": tagged}
    for name, share in shares.items():
        if share is not None and not 0 <= share <= 1:  # NaN, too
            return f"`{name}` is {share}, outside [0, 1]"
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
