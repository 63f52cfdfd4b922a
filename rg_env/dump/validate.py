"""Checks what readers of a dump rely on: each line, the files against each other, how the run ended.

It makes the pass that every reader makes (`rg_env.dump.contents`), and looks at each record on the way. It only reads.
What our runs can write passes, also when they were killed and resumed. Memory does not grow with the texts: a digest of
each group of the current run is kept. Files of a run that is being written are not compared.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from rg_env.dump.contents import Contents, Findings, Place
from rg_env.dump.files import DumpFile, batch_name, manifest_name
from rg_env.dump.manifest import State
from rg_env.dump.reader import Dump
from rg_env.dump.run_files import Run, find_runs
from rg_env.dump.schema import (
    RG_DUMP,
    ROLLOUT_FACTS,
    TEXT_KINDS,
    FileKind,
    GroupFacts,
    GroupRecord,
    LedgerRecord,
    Outcome,
    RolloutFacts,
    TrainedRecord,
    answered,
    has_no_signal,
    is_all_wrong,
    ledger_line,
    outcome_of,
    to_line,
    without_place,
)
from rg_env.scoring.base_score import base_score
from rg_env.scoring.types import Status

_CLOSE = 1e-9
_SHARES = ("penalty_factor", "score", "base_score", "raw_score", "tagged_score")
"""The figures of a rollout that lie in [0, 1]."""


@dataclass
class Validation:
    """What was read, by kind of file, and what was found; `remarks` say what could not be checked, which is no
    fault.

    Attributes:
        files: number of files that were read.
        compared: whether files were compared with each other, so that missing ones are noticed.
    """

    findings: Findings = field(default_factory=Findings)
    remarks: list[str] = field(default_factory=list)
    runs: int = 0
    files: int = 0
    compared: bool = True
    records: Counter[FileKind] = field(default_factory=Counter)

    @property
    def good(self) -> bool:
        return not self.findings.counts

    @property
    def texts(self) -> int:
        """Number of groups with their text."""
        return sum(self.records[kind] for kind in TEXT_KINDS)


def validate(*paths: str | Path) -> Validation:
    """Check dumps, those of one run in several folders together.

    Args:
        paths: dump folders, and single files. A run of which only files are named is not compared with itself.

    Raises:
        DumpError: a path has no dump, or a file cannot be opened.
        NewerSchemaError: a file needs a later version of rg_env.
    """
    whole = {Path(path).resolve() for path in paths if os.path.isdir(path)}
    result = Validation(compared=bool(whole))
    alone: list[DumpFile] = []
    for run in find_runs(paths):
        result.runs += 1
        result.files += len(run.files)
        is_whole = not whole.isdisjoint(folder.resolve() for folder in run.folders)
        _check_run(run, result, compare=is_whole)
        if not is_whole:
            alone += run.files
    if alone:
        folders = ", ".join(dict.fromkeys(str(file.path.parent) for file in alone))
        only = f"only this file was checked: name its folder, {folders},"
        if len(alone) > 1:
            only = f"only these {len(alone)} files were checked, each by itself: name their folder, {folders},"
        result.remarks.append(f"{only} to compare it with all files of the run")
    return result


def _check_run(run: Run, result: Validation, *, compare: bool) -> None:
    """Check a run; without `compare`, each line by itself."""
    contents = Contents(run)
    is_live = contents.state is State.RUNNING
    if is_live and compare:
        result.remarks.append(f"run {run.run_id} is being written now: only its finished files were checked")
        finished = tuple(file for file in run.files if not file.is_open)
        contents = Contents(replace(run, files=finished, manifest=None))
    compare = compare and not is_live
    _check_manifest(run, result)
    _check_lines(contents, result, compare=compare)
    if compare:
        # After the lines: what this compares was noted on the pass over them, so that nothing is read again.
        result.findings.extend(contents.findings(texts=True))
        for file in run.files:
            if file.is_open:
                result.findings.add("unfinished", Place(file.path.name), "left behind by a run that was killed")
        _check_numbers(run, result)
    else:
        result.findings.extend(contents.wrong_lines(*FileKind))


def _check_manifest(run: Run, result: Validation) -> None:
    if run.manifest is not None:
        return
    paths = [folder / manifest_name(run.run_id) for folder in run.folders]
    corrupt = [path for path in paths if os.path.lexists(path)]
    for path in corrupt:
        result.findings.add("manifest", Place(path.name), "not a JSON object")
    if not corrupt:
        result.remarks.append(f"run {run.run_id} has no manifest: its settings are unknown")


def _check_numbers(run: Run, result: Validation) -> None:
    """Find the files that are missing between others of their kind: a run numbers them from 0."""
    expected: Counter[FileKind] = Counter()
    for file in sorted(run.files, key=lambda file: file.batch):
        missing = file.batch - expected[file.kind]
        if missing > 0:
            place = Place(batch_name(file.kind, run.run_id, expected[file.kind]))
            more = f", and the next {missing - 1:,}" if missing > 1 else ""
            result.findings.add("gap", place, f"this file is missing{more}, and later ones of its kind are there")
        expected[file.kind] = file.batch + 1


def _check_lines(contents: Contents, result: Validation, *, compare: bool) -> None:
    """Check each record, and with `compare` what records say about each other: those first to which others refer."""
    needed: dict[str, int] = {}  # a digest of the ledger line that each text needs
    doubtful: set[str] = set()  # groups whose text contradicts itself
    groups: set[str] = set()
    dump = Dump((contents.run,))
    for line in contents.scan(*TEXT_KINDS, FileKind.LEDGER, FileKind.TRAINED, FileKind.STEPS):
        record = line.record
        result.records[line.file.kind] += 1
        problems: list[tuple[str, str]] = []
        if not line.raw.endswith(b"\n"):
            problems.append(("corrupt_line", "the file ends without a line feed"))
        wrong = ""
        if isinstance(record, GroupRecord):
            wrong = contradiction(record, _solved_at(dump, record))
            needed[record.group_id] = hash(without_place(ledger_line(record, line.file.kind)))
            if wrong:
                doubtful.add(record.group_id)
        elif isinstance(record, LedgerRecord):
            groups.add(record.group_id)
            digest = needed.get(record.group_id)
            # Nearly every line is, to the letter, the one that its text needs. The figures of that have been checked.
            is_checked = digest == hash(without_place(line.raw)) and record.group_id not in doubtful
            if not is_checked:
                wrong = contradiction(record, _solved_at(dump, record))
                if compare and digest is not None and digest != hash(_whole_line(record)):
                    problems.append(("contradiction", "differs from its text"))
        elif isinstance(record, TrainedRecord) and compare and record.group_id not in groups:
            problems.append(("unknown_group", f"group {record.group_id} is not in the ledger"))
        if wrong:
            problems.append(("contradiction", wrong))
        for kind, text in problems:
            result.findings.add(kind, contents.place(line.file, line.number), text)


def _whole_line(record: LedgerRecord) -> bytes:
    """Return the record's line without the place of its text, filling in fields that older lines lack."""
    return without_place(
        to_line(msgspec.structs.replace(record, **{name: record.column(name) for name in ROLLOUT_FACTS}))
    )


def _solved_at(dump: Dump, group: GroupFacts) -> float | None:
    """Return the base score from which a rollout of a group is solved; None if that was not recorded."""
    is_recorded = group.environment == RG_DUMP and (group.run_id, group.attempt) in dump.settings
    return dump.solved_at(group) if is_recorded else group.solved_at


def contradiction(group: GroupRecord | LedgerRecord, solved_at: float | None) -> str:
    """Return what no run can have written, or "". Without `solved_at`, any group whose rollouts are not all wrong may
    be all correct."""
    rollouts = group.rollouts
    if group.environment == RG_DUMP:
        for name, share in (("baseline", group.baseline), ("complexity", group.complexity)):
            if not _is_share(share):
                return f"`{name}` is {share}, outside [0, 1]"
        for number, rollout in enumerate(rollouts):
            if what := _contradiction_of_scores(group, rollout):
                return f"rollout {number}: {what}"
    if len({rollout.repetition for rollout in rollouts}) < len(rollouts):
        return "two of its rollouts have the same `repetition`"
    rewards = [rollout.reward for rollout in answered(rollouts)]
    # An unknown reward is NaN, of which nobody can say whether it equals the others.
    if all(map(math.isfinite, rewards)) and group.no_signal != has_no_signal(rewards):
        return f"`no_signal` is {group.no_signal}, which does not fit its rewards"
    scores = [rollout.base_score for rollout in answered(rollouts)]
    if all(map(math.isfinite, scores)) and not _fits(group.outcome, scores, solved_at):
        return f"`outcome` is {group.outcome}, which does not fit its base scores"
    if isinstance(group, LedgerRecord) and bool(group.text) == bool(group.text_reason):
        return "has both `text` and `text_reason`, or neither"
    return ""


def _fits(outcome: Outcome, scores: Sequence[float], solved_at: float | None) -> bool:
    """Return whether an outcome is that of these base scores."""
    if solved_at is not None:
        return outcome is outcome_of(scores, solved_at)
    if outcome is Outcome.ALL_CORRECT:
        return bool(scores)
    return is_all_wrong(scores) == (outcome is Outcome.ALL_FAILED)


def _is_share(value: float | None) -> bool:
    """Return whether a figure lies in [0, 1], which NaN does not; one that is unknown may."""
    return value is None or 0 <= value <= 1


def _contradiction_of_scores(group: GroupRecord | LedgerRecord, rollout: RolloutFacts) -> str:
    raw, tagged, base = rollout.raw_score, rollout.tagged_score, rollout.base_score
    for name in _SHARES:
        share = getattr(rollout, name)
        if not _is_share(share):
            return f"`{name}` is {share}, outside [0, 1]"
    if rollout.violation and rollout.status is Status.NO_RESPONSE:
        return "has a violation although there is no response"
    # A reward function that failed leaves the scores as they are.
    if rollout.violation or rollout.status not in (Status.OK, Status.REWARD_ERROR):
        if base != 0 or raw is not None or tagged is not None:
            return "has scores although nothing was scored"
    elif raw is None or tagged is None:
        return "has no scores, and neither a violation nor a status explains it"
    else:
        right = base_score(group.task, raw, tagged, group.baseline)
        as_upstream = max(raw, tagged) if group.baseline == 0 else right  # scorer.partial_credit=upstream
        if not (math.isclose(base, right, abs_tol=_CLOSE) or math.isclose(base, as_upstream, abs_tol=_CLOSE)):
            return f"`base_score` is {base}, not {right:g}: raw {raw}, tagged {tagged}, baseline {group.baseline}"
    if not math.isclose(rollout.score, base * rollout.penalty_factor, abs_tol=_CLOSE):
        return f"`score` is {rollout.score}, not {base} × {rollout.penalty_factor}"
    return ""
