"""Reading dumps: a folder or files, ours or Atropos', finished or being written, in constant memory.

Invariant: a damaged line affects no other line. It is skipped and listed in `problems`; nothing is left out silently.
Objects and frames are made from the same lines by the same rules. Needs neither torch nor ray nor skyrl.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from rg_env.dump.files import DumpFile
from rg_env.dump.read.chunks import bundles, size_of
from rg_env.dump.read.lines import Line, lines_in, lines_of
from rg_env.dump.read.runs import Run as Run
from rg_env.dump.read.runs import find_runs, run_names
from rg_env.dump.read.texts import TextReader
from rg_env.dump.read.where import Condition, ConditionError, parse_conditions
from rg_env.dump.schema import (
    ROLLOUT_FACTS,
    FileKind,
    GroupRecord,
    LedgerRecord,
    Phase,
    Place,
    RolloutRecord,
    TrainedRecord,
)
from rg_env.output import counted
from rg_env.sanitize import visible

if TYPE_CHECKING:
    import polars as pl

_R = TypeVar("_R", GroupRecord, LedgerRecord, TrainedRecord)
_NAMES_SHOWN = 3
"""How many runs the representation of a dump names."""
_Replaced = frozenset[tuple[str, int | None, int]]
"""Phase, step and attempt of what a later attempt has replaced."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A line that could not be read. `str()` of it is one line for people."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path.name}, line {self.line}: {self.reason}; skipped"


@dataclass(repr=False)
class Dump:
    """The runs that `open_run` found.

    By default a step that was run again after a crash is taken from its last attempt only. Iterators are lazy;
    `problems` fills as they advance.

    Attributes:
        runs: ordered by run id.
        conditions: what every rollout that is read matches: see `where`.
    """

    runs: tuple[Run, ...]
    conditions: tuple[Condition, ...] = ()
    _problems: dict[tuple[Path, int], Problem] = field(default_factory=dict, compare=False)
    _replaced_by_run: dict[str, _Replaced] = field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        """Three lines: the runs, their files, and how to read them."""
        files = [file for run in self.runs for file in run.files]
        names = list(self.names.values())
        shown = ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")
        kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(file.kind for file in files).items())
        ledgers = sum(run.has_ledger for run in self.runs)
        lines = (
            f"Dump of {counted(len(names), 'run')}: {shown}",
            f"{len(files)} files, {sum(map(size_of, files)) / 1e6:.1f} MB: {kinds}; runs with a ledger: {ledgers}",
            "one row per rollout: scan(), ledger_frame(); texts: groups(), rollouts()",
        )
        return "\n".join(visible(line, one_line=True) for line in lines)

    @property
    def names(self) -> dict[str, str]:
        """A short name of each run, by run id: see `run_names`."""
        return run_names(self.runs)

    @property
    def problems(self) -> list[Problem]:
        """The lines skipped so far, in the order in which they were read."""
        return list(self._problems.values())

    @property
    def caveat(self) -> str | None:
        """How statistics of this dump are biased; None if every run has a ledger."""
        names = self.names
        without = [names[run.run_id] for run in self.runs if not run.has_ledger]
        if not without:
            return None
        return (
            f"no ledger found ({', '.join(without)}); statistics are biased: groups whose text was not kept are "
            "missing; Atropos files have no base score, so their `score`, after the length penalty, is used instead"
        )

    # -- conditions

    def where(self, conditions: Iterable[str]) -> Dump:
        """The rollouts that match all conditions, in every reader. Records of training, which have no columns of
        rollouts, are not filtered.

        Args:
            conditions: in SQL, see `parse_condition`.

        Returns:
            a dump that reads only these. Its readers of rollouts raise a `ConditionError` if nothing matches.

        Raises:
            ConditionError: a condition is invalid.
        """
        found = parse_conditions(conditions)
        return replace(self, conditions=(*self.conditions, *found)) if found else self

    @property
    def whole_groups(self) -> bool:
        """False if conditions may have removed some rollouts of a group but not others: pass@k and outcomes of the rest
        would be wrong.
        """
        return not any(condition.splits_groups for condition in self.conditions)

    # -- as objects

    def groups(
        self,
        kinds: Iterable[FileKind] | None = None,
        *,
        phase: Phase | str | None = None,
        ids: Collection[str] | None = None,
        all_attempts: bool = False,
    ) -> Iterator[GroupRecord]:
        """The groups whose text was kept, file by file.

        Args:
            kinds: kinds of text files; all by default.
            phase: `train` or `eval`; both by default.
            ids: only the groups with these `group_id`; all by default. The ledger says where their texts are, so that
                the others are not read.
            all_attempts: also those that a later attempt replaced.

        Raises:
            NewerSchemaError: a file needs a later version of rg_env.
        """
        wanted = [kind for kind in FileKind if kind.holds_text and (kinds is None or kind in kinds)]
        if ids is None and not self.conditions:
            found = self._records(wanted, GroupRecord, all_attempts)
        else:
            found = self.texts_of(self._places(wanted, ids, all_attempts))
        for group in found:
            if phase in (None, group.phase):
                yield group

    def texts_of(self, places: pl.DataFrame) -> Iterator[GroupRecord]:
        """The texts of groups that a frame has found, in its order.

        Args:
            places: a row for each group, with the columns `run_id`, `group_id`, `text`, `text_batch` and `text_offset`
                of a frame; with `repetition`, a list, only these rollouts. Groups whose text was not kept are left out.
        """
        import polars as pl

        places = places.filter(pl.col("text") != "")
        reader = TextReader(self.runs, self._all_places)
        keep = "repetition" in places.columns
        columns = ["run_id", "group_id", "text", "text_batch", "text_offset", *(["repetition"] if keep else [])]
        with closing(reader):
            for run_id, group_id, text, batch, offset, *repetitions in places.select(columns).iter_rows():
                place = None if batch is None or offset is None else (batch, offset)
                group = reader.read(run_id, group_id, FileKind(text), place)
                if group is not None:
                    yield _only(group, repetitions[0]) if keep else group

    def rollouts(
        self,
        kinds: Iterable[FileKind] | None = None,
        *,
        phase: Phase | str | None = None,
        all_attempts: bool = False,
    ) -> Iterator[tuple[GroupRecord, RolloutRecord]]:
        """Every rollout whose text was kept, with its group. Arguments and errors as `groups`."""
        for group in self.groups(kinds, phase=phase, all_attempts=all_attempts):
            for rollout in group.rollouts:
                yield group, rollout

    def ledger(self, *, all_attempts: bool = False) -> Iterator[LedgerRecord]:
        """The lines of the ledger, in the order of writing. Runs without a ledger have none.

        Raises:
            NewerSchemaError: as `groups`.
        """
        records = self._records([FileKind.LEDGER], LedgerRecord, all_attempts)
        if not self.conditions:
            return records
        places = self._places(list(FileKind), None, all_attempts)
        chosen = dict(zip(places["group_id"], places["repetition"], strict=True))
        return (_only(record, chosen[record.group_id]) for record in records if record.group_id in chosen)

    def trained(self, *, all_attempts: bool = False) -> Iterator[TrainedRecord]:
        """What each step was trained on, where our trainers have recorded it.

        Raises:
            NewerSchemaError: as `groups`.
        """
        return self._records([FileKind.TRAINED], TrainedRecord, all_attempts)

    # -- as frames

    def frames(
        self, columns: Collection[str] | None = None, *, texts: bool = False, all_attempts: bool = False
    ) -> Iterator[pl.DataFrame]:
        """The rollouts as polars frames of some MB each, in constant memory.

        Args:
            columns: which columns of `frames.SCHEMA` (with texts: `frames.TEXT_SCHEMA`) to read; all by default. Fewer
                are faster.
            texts: False reads the ledger, and the texts of runs that have none; True reads the files with texts, which
                lack groups whose text was not kept, and also gives `conversation`, `answer` and `entry`.
            all_attempts: also those that a later attempt replaced.

        Yields:
            One row per rollout, the rollouts of a group one below the other and never in two frames; null for what is
            absent. `frames.GROUP_INDEX` numbers the groups. Groups without rollouts have no row.

        Raises:
            ConditionError: no rollout matches the conditions.
            DumpError: a file cannot be read.
            NewerSchemaError: as `groups`.
        """
        from rg_env.dump.read import frames

        wanted = list((frames.TEXT_SCHEMA if texts else frames.SCHEMA) if columns is None else columns)
        matching = self._matching(wanted, texts, all_attempts)
        yield from frames.count_on(frame for _, frame in matching)

    def scan(self, *, texts: bool = False, all_attempts: bool = False) -> pl.LazyFrame:
        """`frames` as one LazyFrame: nothing is read before `collect`, and then only what the query asks for.

        Collected with `engine="streaming"`, a query that aggregates takes constant memory.
        """
        from rg_env.dump.read import frames
        from rg_env.dump.read.scan import scan

        schema = frames.TEXT_SCHEMA if texts else frames.SCHEMA
        return scan(schema, partial(self.frames, texts=texts, all_attempts=all_attempts))

    def ledger_frame(self, *, all_attempts: bool = False) -> pl.DataFrame:
        """One row per rollout with the columns of the ledger; made from texts where a run has no ledger.

        Groups without rollouts have no row. Absent values are null.

        Raises:
            NewerSchemaError: as `groups`.
        """
        import polars as pl

        from rg_env.dump.read import frames

        nothing = pl.DataFrame(schema=frames.SCHEMA)
        return pl.concat([nothing, *(f.select(*frames.SCHEMA) for f in self.frames(all_attempts=all_attempts))])

    def trained_frame(self, *, all_attempts: bool = False) -> pl.DataFrame:
        """`trained` with one row per record."""
        import polars as pl

        from rg_env.dump.read.frames import schema_of

        rows = [msgspec.structs.asdict(record) for record in self.trained(all_attempts=all_attempts)]
        return pl.DataFrame(rows, schema=schema_of(TrainedRecord))

    def files_to_read(self, *, texts: bool = False) -> list[DumpFile]:
        """The files that `frames` reads."""
        return [file for run in self.runs for file in run.files_for_frames(texts=texts)]

    # -- inside

    def _records(self, kinds: Collection[FileKind], of: type[_R], all_attempts: bool) -> Iterator[_R]:
        for run in self.runs:
            files = run.files_of(*kinds)
            replaced = frozenset() if all_attempts or not files else self.replaced(run)
            for file in files:
                for line in self._sound(lines_in(file)):
                    record = line.record
                    assert isinstance(record, of)
                    if (getattr(record, "phase", Phase.TRAIN), record.step, record.attempt) not in replaced:
                        yield record

    def _matching(self, columns: Sequence[str], texts: bool, all_attempts: bool) -> Iterator[tuple[int, pl.DataFrame]]:
        """The number of a run, and some of its rows that match the conditions."""
        from rg_env.dump.read import frames

        tests = [condition.test for condition in self.conditions]
        asked = ["task", *(name for condition in self.conditions for name in condition.columns)] if tests else []
        read = list(dict.fromkeys([*columns, *asked]))
        tasks: set[str] = set()
        matches = not tests
        for number, run in enumerate(self.runs):
            for frame in self._frames_of(run, read, texts, all_attempts):
                if tests:
                    tasks.update(frame["task"].unique())
                    frame = frame.filter(tests)
                    matches = matches or frame.height > 0
                yield number, frame.select(frames.GROUP_INDEX, *columns)
        if tasks and not matches:
            conditions = " and ".join(condition.text for condition in self.conditions)
            raise ConditionError(f"no rollout matches {conditions}; the tasks are {', '.join(sorted(tasks))}")

    def _places(self, kinds: Collection[FileKind], ids: Collection[str] | None, all_attempts: bool) -> pl.DataFrame:
        """Where the texts of the matching groups are, for `texts_of`, in the order of the files."""
        import polars as pl

        from rg_env.dump.read import frames

        columns = ["run_id", "group_id", "text", "text_batch", "text_offset", "repetition"]
        schema: dict[str, Any] = {name: frames.SCHEMA[name] for name in columns} | {
            "repetition": pl.List(pl.Int64),
            "run": pl.Int32,
        }
        found = [pl.DataFrame(schema=schema)]
        for number, frame in self._matching(columns, False, all_attempts):
            if ids is not None:
                frame = frame.filter(pl.col("group_id").is_in(list(ids)))
            of_group = [pl.col(name).first() for name in columns[:-1]]
            groups = frame.group_by(frames.GROUP_INDEX, maintain_order=True).agg(*of_group, "repetition")
            found.append(groups.select(*columns, run=pl.lit(number, pl.Int32)))
        order = {str(kind): number for number, kind in enumerate(FileKind)}
        rank = pl.col("text").replace_strict(order, default=None, return_dtype=pl.Int64())
        wanted = (pl.col("text") == "") | pl.col("text").is_in(list(map(str, kinds)))
        return pl.concat(found).filter(wanted).sort("run", rank, "text_batch", "text_offset", maintain_order=True)

    def _all_places(self) -> dict[str, tuple[FileKind, Place]]:
        """Where all texts are, found in the text files, by group id."""
        columns = ["group_id", "text", "text_batch", "text_offset"]
        once_more = Dump(self.runs, _problems=self._problems)
        return {
            group_id: (FileKind(text), (batch, offset))
            for frame in once_more.frames(columns, texts=True, all_attempts=True)
            for group_id, text, batch, offset in frame.select(columns).iter_rows()
        }

    def _frames_of(self, run: Run, columns: Collection[str], texts: bool, all_attempts: bool) -> Iterator[pl.DataFrame]:
        from rg_env.dump.read import frames

        replaced = frozenset() if all_attempts else self.replaced(run)
        wanted = [*columns, *(name for name in frames.REPLACED_BY if replaced and name not in columns)]
        for parts in bundles(run.files_for_frames(texts=texts)):
            for part in parts:
                if part.damage is not None:
                    self._note(part.file, part.first_line, part.damage)
            frame = frames.read_bundle(parts, wanted, lambda part: self._sound(lines_of(part)))
            yield frames.without(frame, replaced).select(frames.GROUP_INDEX, *columns) if replaced else frame

    def replaced(self, run: Run) -> _Replaced:
        """Phase, step and attempt of what a later attempt of the run has replaced.

        What belongs to no step replaces nothing.
        """
        from rg_env.dump.read import frames

        if run.run_id not in self._replaced_by_run:
            found: _Replaced = frozenset()
            if run.may_have_attempts():
                once_more = Dump((run,), _problems=self._problems)
                found = frames.replaced(once_more.frames(frames.REPLACED_BY, all_attempts=True))
            self._replaced_by_run[run.run_id] = found
        return self._replaced_by_run[run.run_id]

    def _sound(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The lines that are records; what is wrong with the others becomes a problem."""
        for line in lines:
            if line.record is None:
                self._note(line.file, line.number, str(line.fault))
            else:
                yield line

    def _note(self, file: DumpFile, line: int, reason: str) -> None:
        self._problems.setdefault((file.path, line), Problem(file.path, line, reason))


def open_run(*paths: str | Path) -> Dump:
    """Find the dumps in folders and files.

    Args:
        paths: dump folders, which are searched for Atropos' file names, and single files, whose name is free.

    Raises:
        DumpError: a path does not exist, or there is no dump in it.
    """
    return Dump(find_runs(paths))


def _only[G: (GroupRecord, LedgerRecord)](record: G, repetitions: Collection[int]) -> G:
    """The group with these rollouts only."""
    kept = [number for number, rollout in enumerate(record.rollouts) if rollout.repetition in repetitions]
    if len(kept) == len(record.rollouts):
        return record
    names = ROLLOUT_FACTS if isinstance(record, LedgerRecord) else ("rollouts",)
    lists = {name: getattr(record, name) for name in names}
    return msgspec.structs.replace(
        record, **{name: [values[number] for number in kept] for name, values in lists.items()}
    )
