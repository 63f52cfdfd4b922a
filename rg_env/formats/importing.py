"""Makes a dump of the records of another program: reads all of them, groups them, and writes the groups.

What a source lacks stays null, empty or `unscored`, and is said; a reward is never guessed. A record that does not fit
is left out and named, and affects no other; a source without any that fits is refused before anything is written.
Nothing in a source is executed, and it is never changed. Not covered: a source that is larger than memory, which holds
every rollout, because those of a group may lie anywhere.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

import jsonlines
import msgspec
from loguru import logger

from rg_env.base.errors import ConfigError, DumpError
from rg_env.base.wording import counted
from rg_env.dump import (
    Attempt,
    GroupRecord,
    Phase,
    check_folder,
    group_id,
    has_no_signal,
    open_lines,
    outcome_of,
)
from rg_env.dump.files import COMPRESSED, MAX_LINE, READ_ERRORS, open_regular, why_unreadable
from rg_env.dump.manifest import note_in_manifest
from rg_env.dump.opening import open_with
from rg_env.dump.run_files import folder_name
from rg_env.formats.records import Place, Row, loads
from rg_env.formats.together import Files, evaluation_steps, join_turns, prompts_at, split_repeated, usual_size
from rg_env.scoring.types import Status

KEPT = 1000
"""Messages about records that are kept."""
_LACKS = {
    "step": "step",
    "entry": "reference answer",
    "raw_score": "raw and tagged scores",
    "policy_version": "policy version",
    "stop_reason": "stop reason",
    "response_tokens": "length in tokens",
}
_SAME_IN_A_GROUP = ("run_id", "attempt", "phase", "call", "step", "task", "item", "uid", "group_id")
_STEPS_SHOWN = 5
Runs = dict[str, list[list[Row]]]
"""By run id, the rollouts of each group, in the source's order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """Records of another program.

    Attributes:
        program: its name.
        files: patterns of the names of its files in a folder: those of the first line that any file has are read.
        skips: a regular expression of paths in the folder that have such a name, but no rollouts.
        rows: the rollouts of one record, given the record and its place. A ValueError says why the record does not fit,
            a KeyError what it lacks.
        phase: what records that do not say it are taken for.
        shortest: the smallest number of steps between two evaluations, by which they are recognized.
        has_turns: whether a row may be one turn of a rollout: every row has a `turn`.
        once: leaves out rollouts that the program saves again.
        repeats_evaluations: equal rows of two evaluations are two rollouts: only in training are they saved again.
        run_of: the folder of a file's run, where a source may have several; None if records name their run, or are one.
        reads_reward: whether `Place.reward` is used.
        remark: what is to be said of these rows; "" if nothing is.
        left_out: what a folder has that should have been among the files but is not, a line for each.
        never_saved: what the program keeps out of its files, in a sentence.
    """

    program: str
    files: tuple[tuple[str, ...], ...]
    skips: str = "(?!)"
    rows: Callable[[dict[str, Any], Place], Iterable[Row]]
    phase: Phase = Phase.TRAIN
    shortest: int = 2
    has_turns: bool = False
    once: Callable[[Files], Files] | None = None
    repeats_evaluations: bool = False
    run_of: Callable[[Path], Path] | None = None
    reads_reward: bool = False
    remark: Callable[[Iterable[Row]], str] = lambda rows: ""
    left_out: Callable[[Path, Sequence[Path]], Iterable[str]] = lambda source, paths: ()
    never_saved: str = ""


@dataclass
class Imported:
    """The result.

    Attributes:
        unscored: rollouts whose reward is unknown.
        rewards: names of the numbers of which any may be an unknown reward.
        by_prompt: groups that were formed by equal prompts.
        repeated: how many of these come from splitting a prompt's rows, because it was asked several times in a step.
        again: rollouts that were saved more than once, and count once; `unless_evaluated` says how each is counted.
        turns: rows that are later turns of a rollout, and were joined to it.
        unclear: rows that look like a later turn of the row before, and count as a rollout.
        assumed: the phase that records were taken for, because none says it.
        evaluations: the steps that were taken for evaluations, because their prompts come back.
        remarks: what the format says of these records.
        lacks: what no rollout has, by the name of the field.
        records_left_out: number of records of the source that do not fit.
        left_out: what is wrong with the first of them, a line for each.
    """

    groups: int = 0
    rollouts: int = 0
    unscored: int = 0
    rewards: dict[str, None] = field(default_factory=dict)
    by_prompt: int = 0
    repeated: int = 0
    again: int = 0
    unless_evaluated: str = ""
    turns: int = 0
    unclear: int = 0
    assumed: Phase | None = None
    evaluations: list[int] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    lacks: dict[str, str] = field(default_factory=lambda: dict(_LACKS))
    # Printed by `rg-env dumps import`, after the line that `str` makes.
    records_left_out: int = 0
    left_out: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """What was read, what the source lacks, and what was assumed, in one line."""
        words = [f"{counted(self.rollouts, 'rollout')} in {counted(self.groups, 'group')}"]
        if self.lacks:
            words.append(", ".join(f"no {name}" for name in self.lacks.values()))
        if self.unscored:
            words.append(f"reward of {self.unscored:,} unknown: status unscored")
        if self.rewards:
            words.append(f"the numbers are {', '.join(self.rewards)}: --reward NAME chooses one")
        if self.turns:
            words.append(f"{counted(self.turns, 'row')} joined, as later turns of a rollout")
        if self.unclear:
            words.append(f"{counted(self.unclear, 'row')} counted as rollouts that look like later turns")
        if self.again:
            words.append(f"{counted(self.again, 'rollout')} saved again and counted once{self.unless_evaluated}")
        if self.by_prompt:
            words.append(f"{counted(self.by_prompt, 'group')} formed by equal prompts, because the records have no ids")
        if self.repeated:
            words.append(f"{self.repeated:,} of them by their number of rows, because their prompt came more than once")
        words += self.remarks
        if self.assumed:
            words.append(self._assumption())
        return "; ".join(words)

    def leave_out(self, line: str) -> None:
        """Note a record that does not fit."""
        self.records_left_out += 1
        if len(self.left_out) < KEPT:
            self.left_out.append(f"{line}; left out")

    def _assumption(self) -> str:
        steps = list(map(str, self.evaluations))
        if len(steps) > _STEPS_SHOWN:
            steps[_STEPS_SHOWN - 1 : -1] = ["…"]
        said = ""
        if steps:
            said = f", but eval where the same prompts come back (steps {', '.join(steps)})"
        return f"no record says its phase: assumed {self.assumed}{said}; --phase sets it"


def import_records(
    name: str,
    format: Format,
    source: str | Path,
    out: str | Path,
    *,
    run_name: str = "",
    phase: Phase | None = None,
    reward: str = "",
) -> Imported:
    """Write a dump of another program's records.

    Args:
        name: of the format, for the manifest.
        source: a file, or a folder with files of the format, at any depth.
        out: the dump folder, new or empty. It is empty again if this raises.
        run_name: what the run is called; "" is the name of the folder `out`.
        phase: of the records that do not say it.
        reward: the name of the number that is the reward, where records have several.

    Raises:
        ConfigError: records of this format have one reward only. DumpError: there is no such file, no record fits,
            `out` is not empty, or a file cannot be read or written.
    """
    source, out, result = Path(source), Path(out), Imported()
    if reward and not format.reads_reward:
        raise ConfigError(f"records of {format.program} have one reward: leave out --reward")
    _check_empty(out)
    runs = _Reader(source, format, phase, reward, result).read(name)
    if not result.rollouts:
        why = ""
        if result.left_out:
            why = f" ({result.left_out[0].removesuffix('; left out')})"
        raise DumpError(f"{source} has no rollout of {format.program}{why}")
    imported = {
        "from": name,
        "source": source.name,
        "lacks": list(result.lacks.values()),
        "assumed_phase": result.assumed,
        "evaluation_steps": result.evaluations,
        "never_saved": format.never_saved,
    }
    _write_runs(runs, out, run_name or folder_name(out), imported, result)
    return result


def _check_empty(out: Path) -> None:
    """Raise a DumpError unless this is a folder without files, or there is nothing."""
    try:
        has_files = any(out.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise DumpError(f"{out} cannot be read ({error.strerror}): choose another folder for --out") from None
    if has_files:
        raise DumpError(f"{out} is not empty: choose another folder for --out")


def _write_runs(runs: Runs, out: Path, name: str, imported: dict[str, Any], result: Imported) -> None:
    """Write the groups and a manifest of each run, or nothing."""
    check_folder(out)
    logger.disable("rg_env.dump.writer")  # which file has how many groups is of no interest here
    try:
        for run_id, groups in sorted(runs.items()):
            # Several runs of a source have ids of their own in it.
            called = name
            if len(runs) > 1:
                called = f"{name} {run_id}"
            with open_with(out, run_id, Attempt(kind="import", name=called, imported=imported)) as writer:
                for call, rows in enumerate(groups):
                    # Waited for one by one: unlike training, an import ends with the first error of the disk.
                    if not writer.submit([_joined(rows, run_id, call, result)]).result():
                        raise DumpError(f"{out} cannot be written: is the disk full?")
            note_in_manifest(out, run_id, 1, Attempt(end="finished"))
    # An interrupt, too: half an import would look like a whole one.
    except BaseException:
        for path in out.iterdir():
            path.unlink()
        raise
    finally:
        logger.enable("rg_env.dump.writer")


def _joined(rows: Sequence[Row], run_id: str, call: int, result: Imported) -> GroupRecord:
    """Join these rollouts, one in each row, into a group, and count it in the result."""
    first = rows[0].group
    result.groups += 1
    if first.group_id:  # it was ours
        return msgspec.structs.replace(first, rollouts=[row.rollout for row in rows])
    # Without an id of the source's, the group is the rollouts with this prompt.
    if not first.uid:
        result.by_prompt += 1
    rollouts = [msgspec.structs.replace(row.rollout, repetition=number) for number, row in enumerate(rows)]
    scores = [rollout.score for rollout in rollouts if rollout.status is Status.OK]
    digest = blake2b(msgspec.json.encode(rollouts[0].prompt), digest_size=8).hexdigest()
    prompt = f"prompt-{digest}"
    uid = first.uid or prompt
    return msgspec.structs.replace(
        first,
        group_id=group_id(run_id, 1, first.phase, call, uid),
        run_id=run_id,
        uid=uid,
        item=first.item or prompt,
        call=call,
        outcome=outcome_of(scores),
        no_signal=has_no_signal(scores),
        rollouts=rollouts,
    )


class _Reader:
    """Reads the rollouts of a source."""

    def __init__(self, source: Path, format: Format, phase: Phase | None, reward: str, result: Imported) -> None:
        self._format, self._source, self._paths = format, source, [source]
        self._phase, self._reward, self._result = phase, reward, result
        if os.path.isdir(source):
            self._paths = self._find()
        if not self._paths:
            patterns = ", ".join(format.files[0])
            raise DumpError(f"{source} has no file of {format.program} ({patterns})")
        for line in format.left_out(source, self._paths):
            result.leave_out(line)

    def _find(self) -> list[Path]:
        skips = re.compile(self._format.skips)
        # The first patterns that match anything: a tree with trajectories is not searched for other JSON.
        for patterns in self._format.files:
            found = {path for pattern in patterns for path in self._source.rglob(pattern)}
            paths = [path for path in sorted(found) if not skips.search(path.relative_to(self._source).as_posix())]
            if paths:
                return _without_copies(paths)
        return []

    def read(self, name: str) -> Runs:
        """Return the rollouts of all files, by run and group. Records that do not fit are noted."""
        format, result = self._format, self._result
        files: Files = [self._rows_of(path) for path in self._paths]
        if remark := format.remark(chain.from_iterable(files)):
            result.remarks.append(remark)
        if format.never_saved:
            result.remarks.append(format.never_saved)
        # Before turns are joined: the copy of a turn would look like one more turn.
        if format.once and not (format.repeats_evaluations and self._phase is Phase.EVAL):
            before = _count(files)
            files = format.once(files)
            result.again = before - _count(files)
            if format.repeats_evaluations:
                result.unless_evaluated = " (if these are evaluations, --phase eval counts each)"
        if format.has_turns:
            before = _count(files)
            files, result.unclear = join_turns(files)
            result.turns = before - _count(files)
        by_run: dict[tuple[bool, str], list[Row]] = defaultdict(list)
        for row in chain.from_iterable(files):
            self._note(row)
            # What we once exported keeps its run and its ids.
            is_ours = bool(row.group.group_id)
            by_run[is_ours, row.group.run_id].append(row)
        runs: Runs = {}
        for (is_ours, run_id), rows in by_run.items():
            if not is_ours:
                self._set_phases(rows)
                run_id = _id_of(rows, run_id or name)
            runs[run_id] = self._groups_of(rows)
        return runs

    def _rows_of(self, path: Path) -> list[Row]:
        """Read a file."""
        read = []
        offset = 0
        run = self._run_of(path)
        name = path.name if path == self._source else path.relative_to(self._source).as_posix()
        for number, content in enumerate(_contents(path), 1):
            try:
                rows = [] if content.isspace() else self._rows(Place(path, name, offset, self._reward), content)
            except ValueError as error:
                rows = []
                self._result.leave_out(f"{name}, line {number}: {error}")
            for row in rows:
                row.prompt = _digest(row.rollout.prompt)
                if run and not row.group.run_id:
                    row.group = msgspec.structs.replace(row.group, run_id=run)
            read += rows
            # Bytes from the start of the file, which name a group of Atropos: its lines have no id.
            offset += len(content)
        return read

    def _run_of(self, path: Path) -> str:
        """Return the name of the run of a file, if its source has files of several runs."""
        run_of = self._format.run_of
        if run_of is None or len(set(map(run_of, self._paths))) == 1:
            return ""
        return run_of(path).relative_to(self._source).as_posix()

    def _note(self, row: Row) -> None:
        """Count a rollout, and what it has."""
        result, rollout = self._result, row.rollout
        result.rollouts += 1
        if rollout.status is Status.UNSCORED:
            result.unscored += 1
            result.rewards |= dict.fromkeys(row.rewards)
        for key in list(result.lacks):
            # One rollout that has it is enough; the key may be one of the group or of the rollout.
            if getattr(row.group, key, getattr(rollout, key, None)) not in (None, "", "{}"):
                del result.lacks[key]

    def _set_phases(self, rows: Sequence[Row]) -> None:
        """Give the rows of a run that have no phase the one that the user names, or that they probably have."""
        unknown = [row for row in rows if not row.has_phase]
        steps: list[int] = []
        if unknown and self._phase is None:
            self._result.assumed = self._format.phase
            steps = evaluation_steps(unknown, self._format.shortest)
            self._result.evaluations = sorted({*self._result.evaluations, *steps})
        # The file of such a step may also have rows of training, whose prompts do not come back.
        evaluated = prompts_at(unknown, set(steps))
        for row in unknown:
            phase = self._phase or self._format.phase
            if row.prompt in evaluated and row.group.step in steps:
                phase = Phase.EVAL
            row.group = msgspec.structs.replace(row.group, phase=phase)

    def _groups_of(self, rows: Sequence[Row]) -> list[list[Row]]:
        """Return the rollouts of each group of a run."""
        groups: dict[bytes, list[Row]] = defaultdict(list)
        for row in rows:
            same = [getattr(row.group, key) for key in _SAME_IN_A_GROUP]
            if _is_by_prompt([row]):
                same.append(row.prompt)
            groups[_digest(same)].append(row)
        # By phase, since an evaluation may ask for another number of samples. Without steps, epochs look like samples.
        by_prompt: dict[Phase, list[list[Row]]] = defaultdict(list)
        for group in groups.values():
            if _is_by_prompt(group) and group[0].group.step is not None:
                by_prompt[group[0].group.phase].append(group)
        sizes = {phase: usual_size(of_phase) for phase, of_phase in by_prompt.items()}
        split = []
        for group in groups.values():
            # A prompt that was asked twice in a step is two groups, if the others tell how many rows a group has.
            parts = [group]
            if _is_by_prompt(group) and group[0].group.step is not None:
                parts = split_repeated(group, sizes[group[0].group.phase])
            self._result.repeated += len(parts) - 1
            split += parts
        return split

    def _rows(self, place: Place, content: bytes) -> list[Row]:
        try:
            record = jsonlines.Reader([content], loads=loads).read(allow_none=True)
            if not isinstance(record, dict):
                raise ValueError("not an object")
            return list(self._format.rows(record, place))
        except KeyError as error:
            raise ValueError(f"has no `{error.args[0]}`") from None
        except (jsonlines.Error, RecursionError) as error:
            raise ValueError(f"not JSON ({error.__cause__ or error})") from None


def _without_copies(paths: Iterable[Path]) -> list[Path]:
    """Return the files, sorted as they are, without those that are another one compressed."""
    files: dict[Path, Path] = {}
    for path in paths:
        plain = path.with_suffix("") if path.suffix in COMPRESSED else path
        files.setdefault(plain, path)  # the plain one comes first
    return list(files.values())


def _is_by_prompt(group: Sequence[Row]) -> bool:
    """Return whether the source has no id of the group, which is the rollouts with equal prompts then."""
    return not (group[0].group.uid or group[0].group.group_id)


def _count(files: Files) -> int:
    return sum(map(len, files))


def _digest(value: Any) -> bytes:
    return blake2b(msgspec.json.encode(value), digest_size=16).digest()


def _id_of(rows: Iterable[Row], name: str) -> str:
    """Return the id of a run: its name, as far as it can stand in file names, and a digest of its records, since the
    names of folders and files are the same in every run of a program."""
    digest = blake2b(digest_size=6)
    for row in rows:
        digest.update(msgspec.json.encode(row.group))
    called = re.sub(r"[^\w.-]", "-", name)[:100]
    return f"{called}-{digest.hexdigest()}"


def _contents(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, of a `.json` file all of it."""
    try:
        with _table(path) if path.suffix == ".parquet" else open_lines(path) as file:
            read = file.read if path.suffix == ".json" else file.readline
            while content := read(MAX_LINE):
                yield content
    except READ_ERRORS as error:
        raise DumpError(f"{path} cannot be read ({why_unreadable(error)})") from None


def _table(path: Path) -> io.BytesIO:
    """Return the rows of a parquet file as lines of JSON, without what is null in columns that do not hold numbers."""
    import polars as pl

    try:
        with open_regular(path) as file:
            table = pl.read_parquet(file)
    except pl.exceptions.PolarsError as error:
        raise DumpError(f"{path} is not a whole parquet file ({str(error).partition(chr(10))[0]})") from None
    # There a null is a reward that is not known, and the column must stay for `trl_rows` to count it.
    numbers = {name for name, kind in table.schema.items() if kind.is_float()}
    lines = io.BytesIO()
    for row in table.iter_rows(named=True):
        known = {name: value for name, value in row.items() if value is not None or name in numbers}
        lines.write(f"{json.dumps(known, default=str)}\n".encode())
    lines.seek(0)
    return lines
