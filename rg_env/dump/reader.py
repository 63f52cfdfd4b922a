"""Reading dumps: a folder or files, finished or being written, in constant memory.

A damaged line affects no other line: it is skipped and listed in `problems`. What is missing is listed in `missing`.
Objects and frames are made from the same records. Needs neither torch nor ray nor skyrl.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rg_env.choices import ResponseFormat
from rg_env.config import RGDumpConfig
from rg_env.dump.files import MAX_LINE, READ_ERRORS, DumpFile, Line, lines_in, open_lines, raw_lines
from rg_env.dump.manifest import settings_in
from rg_env.dump.runs import Run, attempts_of, find_runs, run_names
from rg_env.dump.schema import (
    RG_DUMP,
    ROLLOUT_FACTS,
    TEXT_KINDS,
    BadLineError,
    FileKind,
    GroupFacts,
    GroupRecord,
    LedgerRecord,
    NotKept,
    Phase,
    Record,
    RolloutFacts,
    RolloutRecord,
    StepRecord,
    TrainedRecord,
    from_line,
)
from rg_env.output import counted, visible

if TYPE_CHECKING:
    import polars as pl

    from rg_env.dump.frames import Condition

_NAMES_SHOWN = 3
"""How many runs the representation of a dump names."""
_GROUP_ID = re.compile(rb'"group_id":"((?:[^"\\]|\\.)*)"')
"""In a line: within a text, the quotes are escaped."""
_FRAME_BYTES, _FRAME_LINES = 1 << 24, 1_000
"""Lines from which one frame is made: enough for throughput, few enough that the garbage collector, which goes through
the lists of all lines that are held, takes little time."""


@dataclass
class _Read:
    """What was found out while reading, shared by all parts of a dump."""

    problems: dict[tuple[Path, int], str] = field(default_factory=dict)
    replaced: dict[str, Callable[[Record], bool]] = field(default_factory=dict)
    records: dict[tuple[str, FileKind], Counter[str]] = field(default_factory=dict)
    """By run id and kind of file: how many records were read, to the end; of the ledger, by the kind with the text."""


@dataclass(repr=False)
class Dump:
    """The runs that `open_run` found.

    By default a step that was run again after a crash is taken from its last attempt only. Iterators are lazy;
    `problems` and `missing` fill as they advance.

    Attributes:
        runs: in the order given, those of a folder by run id.
        conditions: what every rollout that is read matches: see `where`.
        has_all_attempts: see `all_attempts`.
    """

    runs: tuple[Run, ...]
    conditions: tuple[Condition, ...] = ()
    has_all_attempts: bool = False
    _read: _Read = field(default_factory=_Read, compare=False)

    def __repr__(self) -> str:
        """Three lines: the runs, their files, and how to read them."""
        files = [file for run in self.runs for file in run.files]
        names = list(self.names.values())
        shown = ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")
        kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(file.kind for file in files).items())
        ledgers = sum(run.has_ledger for run in self.runs)
        lines = (
            f"Dump of {counted(len(names), 'run')}: {shown}",
            f"{len(files)} files: {kinds}; runs with a ledger: {ledgers}",
            "one row per rollout: scan(), ledger_frame(); texts: groups(), rollouts()",
        )
        return "\n".join(visible(line, one_line=True) for line in lines)

    @property
    def names(self) -> dict[str, str]:
        """A short name of each run, by run id: see `run_names`."""
        return run_names(self.runs)

    @property
    def problems(self) -> list[str]:
        """The lines skipped so far and why, one line each, in the order in which they were read."""
        return list(self._read.problems.values())

    @property
    def caveat(self) -> str | None:
        """How statistics of this dump are biased; None if every run has a ledger."""
        names = self.names
        without = [names[run.run_id] for run in self.runs if not run.has_ledger]
        if not without:
            return None
        return f"no ledger found ({', '.join(without)}): groups whose text was not kept are missing in statistics"

    @property
    def missing(self) -> list[str]:
        """What is known to be missing, one line each: files, groups, the regular end of a run. More is known after
        reading.
        """
        return [
            what
            for run in self.runs
            for what in (*run.missing_files(FileKind), *run.how_it_ended().values(), *self._missing_texts(run))
        ]

    @property
    def has_every_group(self) -> bool | None:
        """Whether all runs have a ledger in which nothing is missing, as far as is known after reading it; None if
        nothing is known to be missing, but no manifest says how a run ended.
        """
        ledgers = {file.path for run in self.runs for file in run.files_of(FileKind.LEDGER)}
        damaged = any(path in ledgers for path, _ in self._read.problems)
        missing = any([*run.missing_files([FileKind.LEDGER]), *run.how_it_ended()] for run in self.runs)
        if self.caveat or damaged or missing:
            return False
        return True if all(attempts_of(run.manifest) for run in self.runs) else None

    # -- settings

    @cached_property
    def settings(self) -> dict[tuple[str, int], RGDumpConfig]:
        """The settings of every attempt whose manifest has them, by run id and attempt."""
        described = [(run.run_id, entry) for run in self.runs for entry in attempts_of(run.manifest)]
        return {
            (run_id, entry["attempt"]): settings
            for run_id, entry in described
            if isinstance(entry.get("attempt"), int) and (settings := settings_in(entry))
        }

    def settings_for(self, group: GroupFacts) -> RGDumpConfig:
        """The settings with which a group was recorded. Where no manifest has them, the defaults; for a group of
        another environment, such as an import, with the lenient format, since its prompt may not ask for a think block.
        """
        known = self.settings.get((group.run_id, group.attempt))
        if known is None and group.environment != RG_DUMP:
            return RGDumpConfig(format=ResponseFormat.LENIENT)
        return known or RGDumpConfig()

    def solved_at(self, group: GroupFacts) -> float:
        """The base score from which a rollout of a group counts as solved: its own, else that of the settings."""
        return self.settings_for(group).solved_at if group.solved_at is None else group.solved_at

    # -- parts of it

    def all_attempts(self) -> Dump:
        """The same runs with what a later attempt replaced, in every reader."""
        return replace(self, has_all_attempts=True)

    def where(self, conditions: Iterable[str]) -> Dump:
        """The rollouts that match all conditions, in every reader. Records of training and of steps, which have no
        columns of rollouts, are not filtered.

        Args:
            conditions: in SQL, see `rg_env.dump.frames.parse_condition`.

        Returns:
            a dump that reads only these. Its readers of rollouts raise a `ConditionError` if nothing matches.

        Raises:
            ConditionError: a condition is invalid.
        """
        from rg_env.dump.frames import parse_condition

        parsed = tuple(map(parse_condition, conditions))
        return replace(self, conditions=(*self.conditions, *parsed)) if parsed else self

    @property
    def whole_groups(self) -> bool:
        """False if conditions may have removed some rollouts of a group but not others: pass@k and outcomes of the rest
        would be wrong.
        """
        return not any(condition.splits_groups for condition in self.conditions)

    # -- as objects

    def groups(self, ids: Collection[str] | None = None) -> Iterator[GroupRecord]:
        """The groups whose text was kept, by run and kind of file, in the order of writing.

        Args:
            ids: only groups with these ids.

        Raises:
            NewerSchemaError: a file needs a later version of rg_env.
        """
        return (group for group in self._records(GroupRecord) if ids is None or group.group_id in ids)

    def rollouts(self) -> Iterator[tuple[GroupRecord, RolloutRecord]]:
        """Every rollout whose text was kept, with its group. Errors as `groups`."""
        return ((group, rollout) for group in self.groups() for rollout in group.rollouts)

    def ledger(self) -> Iterator[LedgerRecord]:
        """The lines of the ledger, in the order of writing. Runs without a ledger have none. Errors as `groups`."""
        return self._records(LedgerRecord)

    def why_no_texts(self) -> str | None:
        """Why the text of no training group was kept, with the settings that decided; None if one was kept."""
        reasons: Counter[str] = Counter()
        for record in self.ledger():
            if record.phase == Phase.TRAIN:
                if record.text:
                    return None
                reasons[record.text_reason] += 1
        thresholds = {config.rollout_save_score_threshold for config in self.settings.values()}
        decided = ["dump_other_rollouts=false", *(f"rollout_save_score_threshold={number:g}" for number in thresholds)]
        words: dict[str, str] = {
            NotKept.ROLLOUTS_OFF: "above the threshold (dump_rollouts=false)",
            NotKept.FAILED_OFF: "all wrong (dump_failed_rollouts=false)",
            NotKept.OTHER_OFF: f"neither above the threshold nor all wrong ({', '.join(decided)})",
        }
        counts = [f"{count:,} {words.get(name, 'without a response')}" for name, count in reasons.most_common()]
        return f"no rollouts saved: {', '.join(counts)}" if counts else None

    def trained(self) -> Iterator[TrainedRecord]:
        """What each step was trained on, where our trainers have recorded it. Errors as `groups`."""
        return self._records(TrainedRecord)

    def steps(self) -> Iterator[StepRecord]:
        """The trainer's own numbers of each step. Errors as `groups`."""
        return self._records(StepRecord)

    # -- as frames

    def _frames(self, columns: Collection[str] | None = None, *, texts: bool = False) -> Iterator[pl.DataFrame]:
        """The rows of `scan` with these columns, in frames of some MB; a group is never in two of them."""
        from rg_env.dump.frames import SCHEMA, TEXT_SCHEMA, ConditionError

        names = list((TEXT_SCHEMA if texts else SCHEMA) if columns is None else columns)
        tests = [condition.test for condition in self.conditions]
        tested = ["task", *(name for condition in self.conditions for name in condition.columns)] if tests else []
        tasks: set[str] = set()
        matches = not tests
        for run in self.runs:
            for frame in self._frames_of(run, list(dict.fromkeys([*names, *tested])), texts):
                if tests:
                    tasks.update(frame["task"].unique())
                    frame = frame.filter(tests)
                    matches = matches or frame.height > 0
                yield frame.select(names)
        if tasks and not matches:
            conditions = " and ".join(condition.text for condition in self.conditions)
            raise ConditionError(f"no rollout matches {conditions}; the tasks are {', '.join(sorted(tasks))}")

    def scan(self, *, texts: bool = False) -> pl.LazyFrame:
        """One row per rollout, null for numbers and "" for texts that are absent. Groups without rollouts have no row.

        Nothing is read before `collect`, and then only the columns that the query asks for, in constant memory if it
        aggregates and is collected with `engine="streaming"`.

        Args:
            texts: False reads the ledger, and the texts of runs that have none; True reads the files with texts, which
                lack groups whose text was not kept, and also gives `conversation`, `answer` and `entry`.

        Raises:
            ConditionError: no rollout matches the conditions.
            DumpError: a file cannot be read.
            NewerSchemaError: as `groups`.
        """
        from rg_env.dump.frames import SCHEMA, TEXT_SCHEMA, scan_frames

        return scan_frames(TEXT_SCHEMA if texts else SCHEMA, partial(self._frames, texts=texts))

    def ledger_frame(self) -> pl.DataFrame:
        """`scan`, in memory. Errors as `scan`."""
        import polars as pl

        from rg_env.dump.frames import SCHEMA

        return pl.concat([pl.DataFrame(schema=SCHEMA), *self._frames()])

    def trained_frame(self) -> pl.DataFrame:
        """`trained` with one row per record."""
        import polars as pl

        from rg_env.dump.frames import schema_of

        rows = [msgspec.structs.asdict(record) for record in self.trained()]
        return pl.DataFrame(rows, schema=schema_of(TrainedRecord), orient="row")

    def files_to_read(self, *, texts: bool = False) -> list[DumpFile]:
        """The files that `scan` reads."""
        return [file for run in self.runs for file in run.files_of(*run.kinds_for_frames(texts=texts))]

    # -- inside

    def _missing_texts(self, run: Run) -> Iterator[str]:
        """Groups whose text the ledger names, and that are not there; known after both were read."""
        ledger = self._read.records.get((run.run_id, FileKind.LEDGER))
        if ledger is None or not run.has_ledger:
            return
        for kind in TEXT_KINDS:
            texts = self._read.records.get((run.run_id, kind))
            count = 0 if texts is None else ledger[kind] - texts.total()
            if count > 0:
                yield f"{counted(count, 'group')} of run {run.run_id} in no {kind} file, though the ledger says so"
            elif count < 0:
                yield f"{counted(-count, 'group')} in {kind} files of run {run.run_id} without a line in the ledger"

    def _kept_rollouts(self, run: Run) -> dict[str, frozenset[int]]:
        """The repetitions of the rollouts that match the conditions, by group."""
        from rg_env.dump.frames import ConditionError

        kept: dict[str, frozenset[int]] = {}
        try:
            for frame in replace(self, runs=(run,))._frames(["group_id", "repetition"]):
                for group_id, repetitions in frame.group_by("group_id").agg("repetition").iter_rows():
                    kept[group_id] = frozenset(repetitions)
        except ConditionError:  # another run may match
            pass
        return kept

    def _records[R: Record](self, of: type[R]) -> Iterator[R]:
        """The records of a class; of groups, with the rollouts that match the conditions."""
        kinds = [kind for kind in FileKind if issubclass(kind.record, of)]
        for run in self.runs:
            kept = self._kept_rollouts(run) if self.conditions and issubclass(of, GroupFacts) else None
            for line in self._lines(run, kinds):
                record = line.record
                assert isinstance(record, of)
                if kept is None:
                    yield record
                elif repetitions := kept.get(getattr(record, "group_id", "")):
                    yield _only(record, repetitions)

    def _lines(self, run: Run, kinds: Iterable[FileKind]) -> Iterator[Line]:
        """The lines that are records and were not replaced; what is wrong with another line becomes a problem."""
        replaced = self._read.replaced
        for kind in kinds:
            counts: Counter[str] = Counter()
            for line in (line for file in run.files_of(kind) for line in lines_in(file)):
                if line.record is None:
                    path, number = line.file.path, line.number
                    self._read.problems[path, number] = f"{path.name}, line {number}: {line.fault}; skipped"
                    continue
                counts[getattr(line.record, "text", "")] += 1
                if not self.has_all_attempts and run.run_id not in replaced:
                    replaced[run.run_id] = run.replaced()
                if self.has_all_attempts or not replaced[run.run_id](line.record):
                    yield line
            self._read.records[run.run_id, kind] = counts

    def _frames_of(self, run: Run, columns: list[str], texts: bool) -> Iterator[pl.DataFrame]:
        from rg_env.dump.frames import rollouts_frame

        held: list[Line] = []
        size = 0
        for line in self._lines(run, run.kinds_for_frames(texts=texts)):
            if held and (size > _FRAME_BYTES or len(held) == _FRAME_LINES or held[0].file.kind is not line.file.kind):
                yield rollouts_frame(held, columns)
                held, size = [], 0
            held.append(line)
            size += len(line.raw)
        if held:
            yield rollouts_frame(held, columns)


def open_run(*paths: str | Path) -> Dump:
    """Find the dumps in folders and files.

    Args:
        paths: dump folders, and single files, whose name is free.

    Raises:
        DumpError: a path does not exist, or there is no dump in it.
    """
    return Dump(find_runs(paths))


class TextIndex:
    """Where the text of each group is, to show groups in any order; found by reading the text files once."""

    def __init__(self, dump: Dump) -> None:
        self._places: dict[tuple[str, str], tuple[DumpFile, int]] = {}
        for run in dump.runs:
            for file in run.files_of(*TEXT_KINDS):
                for _, offset, line in raw_lines(file):
                    match = _GROUP_ID.search(line) if isinstance(line, bytes) else None
                    if match is not None:
                        self._places.setdefault((run.run_id, match[1].decode(errors="replace")), (file, offset))

    def read(self, run_id: str, group_id: str) -> GroupRecord | None:
        """The group, or None if its text is damaged or gone."""
        name = msgspec.json.encode(group_id)[1:-1].decode()
        if (run_id, name) not in self._places:
            return None
        file, offset = self._places[run_id, name]
        try:
            with open_lines(file.path) as lines:
                lines.seek(offset)
                group = from_line(GroupRecord, lines.readline(MAX_LINE))
        except (*READ_ERRORS, BadLineError):
            return None
        return group if group.group_id == group_id else None


def _only[R: Record](group: R, repetitions: Collection[int]) -> R:
    """The group with these rollouts only."""
    rollouts: list[RolloutFacts] = getattr(group, "rollouts", [])
    kept = [number for number, rollout in enumerate(rollouts) if rollout.repetition in repetitions]
    names = ROLLOUT_FACTS if isinstance(group, LedgerRecord) else ("rollouts",)
    lists = {name: getattr(group, name) for name in names}
    return msgspec.structs.replace(
        group, **{name: [values[number] for number in kept] for name, values in lists.items()}
    )
