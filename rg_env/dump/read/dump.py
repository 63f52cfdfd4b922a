"""Reading dumps: a folder or files, ours or Atropos', finished or being written, in constant memory.

Invariant: a damaged line affects no other line. It is skipped and listed in `problems`; nothing is left out silently.
Objects and frames are made from the same lines by the same rules. Needs neither torch nor ray nor skyrl.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rg_env.dump.codec import BadLineError, Record
from rg_env.dump.files import DumpFile
from rg_env.dump.read.chunks import Watch, bundles, last_line, size_of
from rg_env.dump.read.lines import Line, lines_at, lines_in, lines_of, parse
from rg_env.dump.read.runs import Run as Run
from rg_env.dump.read.runs import find_runs, run_names
from rg_env.dump.schema import (
    FileKind,
    GroupRecord,
    LedgerRecord,
    LevelRecord,
    Phase,
    RolloutRecord,
    TrainedRecord,
)
from rg_env.errors import DumpError
from rg_env.output import print_line
from rg_env.sanitize import visible

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import ray.data

_R = TypeVar("_R", GroupRecord, LedgerRecord, TrainedRecord, LevelRecord)
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
        watch: called with the bytes read since the last call, for progress bars.
    """

    runs: tuple[Run, ...]
    watch: Watch | None = field(default=None, compare=False)
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
            f"Dump of {len(names)} run{'s'[: len(names) != 1]}: {shown}",
            f"{len(files)} files, {sum(map(size_of, files)) / 1e6:.1f} MB: {kinds}; runs with a ledger: {ledgers}",
            "one row per rollout: scan(), ledger_frame(), to_pandas(); texts: groups(), rollouts()",
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
            ids: only the groups with these `group_id`; all by default. Few are several times as fast as all: the texts
                of the others are not decoded, and `problems` lacks a line in which only those are malformed.
            all_attempts: also those that a later attempt replaced.

        Raises:
            NewerSchemaError: a file needs a later version of rg_env.
        """
        wanted = {kind for kind in (FileKind if kinds is None else kinds) if kind.holds_text}
        for group in self._records(wanted, GroupRecord, all_attempts, ids):
            if phase in (None, group.phase):
                yield group

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
        return self._records({FileKind.LEDGER}, LedgerRecord, all_attempts)

    def trained(self, *, all_attempts: bool = False) -> Iterator[TrainedRecord]:
        """What each step was trained on, where our trainers have recorded it.

        Raises:
            NewerSchemaError: as `groups`.
        """
        return self._records({FileKind.TRAINED}, TrainedRecord, all_attempts)

    def levels(self, *, all_attempts: bool = False) -> Iterator[LevelRecord]:
        """The moves of levels, in order; none without a curriculum.

        Raises:
            NewerSchemaError: as `groups`.
        """
        return self._records({FileKind.LEVELS}, LevelRecord, all_attempts)

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
            DumpError: a file cannot be read.
            NewerSchemaError: as `groups`.
        """
        from rg_env.dump.read import frames

        wanted = list((frames.TEXT_SCHEMA if texts else frames.SCHEMA) if columns is None else columns)
        found = (frame for run in self.runs for frame in self._frames_of(run, wanted, texts, all_attempts))
        yield from frames.count_on(found)

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
        from rg_env.dump.read import frames

        return frames.trained_frame(self.trained(all_attempts=all_attempts))

    def levels_frame(self, *, all_attempts: bool = False) -> pl.DataFrame:
        """`levels` with one row per record."""
        from rg_env.dump.read import frames

        return frames.levels_frame(self.levels(all_attempts=all_attempts))

    def to_pandas(self, *, texts: bool = False, all_attempts: bool = False) -> pd.DataFrame:
        """`scan` collected as a pandas frame; pandas has to be installed."""
        return self.scan(texts=texts, all_attempts=all_attempts).collect().to_pandas()

    def to_ray(self, *, texts: bool = False, all_attempts: bool = False) -> ray.data.Dataset:
        """The rows of `scan` as a Ray Data dataset, read by Ray's workers; Ray has to be installed.

        The paths must mean the same files on every machine of the cluster. Damaged lines are skipped, and reported in
        the logs of Ray's workers.
        """
        from rg_env.dump.read.ray_data import shares, to_ray

        sources = []
        for run in self.runs:
            replaced = frozenset() if all_attempts else self.replaced(run)
            for files in shares(run.files_for_frames(texts=texts)):
                sources.append(partial(_read_share, Run(run.run_id, files, None), replaced, texts))
        return to_ray(sources)

    def files_to_read(self, *, texts: bool = False) -> list[DumpFile]:
        """The files that `frames` reads."""
        return [file for run in self.runs for file in run.files_for_frames(texts=texts)]

    # -- inside

    def _records(
        self, kinds: Collection[FileKind], of: type[_R], all_attempts: bool, ids: Collection[str] | None = None
    ) -> Iterator[_R]:
        for run in self.runs:
            files = run.files_of(*kinds)
            replaced = frozenset() if all_attempts or not files else self.replaced(run)
            for record in self._sound(self._lines(files, ids)):
                assert isinstance(record, of)
                phase = getattr(record, "phase", Phase.TRAIN)
                wanted = ids is None or getattr(record, "group_id", None) in ids
                if wanted and (phase, record.step, record.attempt) not in replaced:
                    yield record

    def _lines(self, files: Iterable[DumpFile], ids: Collection[str] | None) -> Iterator[Line]:
        """The lines of files; with `ids`, without most lines of other groups."""
        if ids is None:
            for file in files:
                yield from lines_in(file, self.watch)
            return
        from rg_env.dump.read import frames

        for parts in bundles(files, self.watch):
            places = frames.places_of(parts, ids)
            if places is not None:
                yield from lines_at(parts, places)
            else:
                yield from (line for part in parts for line in lines_of(part))

    def _frames_of(self, run: Run, columns: Collection[str], texts: bool, all_attempts: bool) -> Iterator[pl.DataFrame]:
        from rg_env.dump.read import frames

        replaced = frozenset() if all_attempts else self.replaced(run)
        wanted = [*columns, *(name for name in frames.REPLACED_BY if replaced and name not in columns)]
        for parts in bundles(run.files_for_frames(texts=texts), self.watch):
            for part in parts:
                if part.damage is not None:
                    self._note(part.file, part.first_line, part.damage)
            frame = frames.read_bundle(parts, wanted, lambda part: self._sound(lines_of(part)))
            yield frames.without(frame, replaced).select(frames.GROUP_INDEX, *columns) if replaced else frame

    def replaced(self, run: Run) -> _Replaced:
        """Phase, step and attempt of what a later attempt of the run has replaced.

        Attempts follow each other in a file, so that only a run whose last lines are of a later attempt is read.
        What belongs to no step replaces nothing.
        """
        from rg_env.dump.read import frames

        if run.run_id not in self._replaced_by_run:
            found: _Replaced = frozenset()
            if _may_have_attempts(run):
                once_more = Dump((run,), _problems=self._problems)
                found = frames.replaced(once_more.frames(frames.REPLACED_BY, all_attempts=True))
            self._replaced_by_run[run.run_id] = found
        return self._replaced_by_run[run.run_id]

    def is_last_attempt(self, run_id: str, phase: str, step: int | None, attempt: int) -> bool:
        """False if a later attempt of the run replaced this."""
        found = self._replaced_by_run.get(run_id)
        if found is None:
            found = self.replaced(next(run for run in self.runs if run.run_id == run_id))
        return (phase, step, attempt) not in found

    def _sound(self, lines: Iterable[Line]) -> Iterator[Record]:
        """The records of lines; what is wrong with the other lines becomes a problem."""
        for line in lines:
            if line.record is None:
                self._note(line.file, line.number, str(line.fault))
            else:
                yield line.record

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


def _read_share(run: Run, replaced: _Replaced, texts: bool) -> Iterator[pl.DataFrame]:
    """The rows of some files of a run; what had to be skipped is printed."""
    from rg_env.dump.read import frames

    dump = Dump((run,), _replaced_by_run={run.run_id: replaced})
    for frame in dump.frames(texts=texts):
        yield frame.drop(frames.GROUP_INDEX)
    for problem in dump.problems:
        print_line(problem)


def _may_have_attempts(run: Run) -> bool:
    """False if the last lines are of the first attempt; True also if they cannot be read."""
    files = {file.kind: file for file in run.files_for_frames(texts=False)}  # the last one of each kind
    for file in files.values():
        try:
            record = parse(file, 0, last_line(file))
        except (OSError, BadLineError, DumpError):
            return True
        if record.attempt > 1:
            return True
    return False
