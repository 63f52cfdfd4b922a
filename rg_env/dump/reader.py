"""Reading dumps: a folder or files, ours or Atropos', finished or being written, in constant memory.

Invariant: a damaged line costs itself only. It is skipped and listed in `problems`; nothing else is left out silently.
Needs neither torch nor ray nor skyrl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rg_env.dump.codec import BadLineError, NewerSchemaError, from_line, ledger_from_line
from rg_env.dump.files import PREFIX, DumpFile, list_files, parse_name
from rg_env.dump.lines import open_lines
from rg_env.dump.runs import read_manifest
from rg_env.dump.schema import FileKind, GroupRecord, LedgerRecord, Phase
from rg_env.errors import DumpError

if TYPE_CHECKING:
    import polars as pl

_R = TypeVar("_R", GroupRecord, LedgerRecord)


@dataclass(frozen=True, slots=True)
class Problem:
    """A line that could not be read. `str()` of it is one line for people."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path.name}, line {self.line}: {self.reason}; skipped"


@dataclass(frozen=True)
class Run:
    """The files of one run that were found.

    Attributes:
        manifest: what the run was started with, or None.
    """

    run_id: str
    files: tuple[DumpFile, ...]
    manifest: dict[str, Any] | None

    def files_of(self, *kinds: FileKind) -> list[DumpFile]:
        """The files of these kinds, in the order of writing within each kind."""
        return [file for file in self.files if file.kind in kinds]

    @property
    def has_ledger(self) -> bool:
        return bool(self.files_of(FileKind.LEDGER))


@dataclass
class Dump:
    """What `open_run` found.

    By default a step that was run again after a crash is taken from its last attempt only; which steps those are is
    known from the ledger. Iterators are lazy; `problems` fills as they advance.
    """

    runs: tuple[Run, ...]
    _problems: dict[tuple[Path, int], Problem] = field(default_factory=dict, repr=False)

    @property
    def problems(self) -> list[Problem]:
        """The lines skipped so far, in the order in which they were met."""
        return list(self._problems.values())

    @property
    def caveat(self) -> str | None:
        """What figures from this dump cannot show, or None where the ledger has every group."""
        without = [run.run_id for run in self.runs if not run.has_ledger]
        if not without:
            return None
        return (
            f"read from texts, for want of a ledger ({', '.join(without)}): groups whose text was not kept are "
            "missing, so that every figure is biased; Atropos' files have no base score: their `score`, after the "
            "length penalty, stands for it"
        )

    def groups(
        self,
        kinds: Iterable[FileKind] | None = None,
        *,
        phase: Phase | str | None = None,
        all_attempts: bool = False,
    ) -> Iterator[GroupRecord]:
        """The groups whose text was kept, file by file.

        Args:
            kinds: kinds of text files; all by default.
            phase: `train` or `eval`; both by default.
            all_attempts: True for replaced attempts, too.

        Raises:
            NewerSchemaError: a file needs a later version of rg_env.
        """
        wanted = {kind for kind in (FileKind if kinds is None else kinds) if kind.holds_text}
        for run in self.runs:
            for file in run.files_of(*wanted):
                for group in self._groups_in(file):
                    if phase in (None, group.phase) and (all_attempts or self._is_last(run, group)):
                        yield group

    def ledger(self, *, all_attempts: bool = False) -> Iterator[LedgerRecord]:
        """The lines of the ledger, in the order of writing. Runs without a ledger have none.

        Raises:
            NewerSchemaError: as `groups`.
        """
        for run in self.runs:
            for file in run.files_of(FileKind.LEDGER):
                for record in self._ledger_lines_in(file):
                    if all_attempts or self._is_last(run, record):
                        yield record

    def ledger_frame(self, *, all_attempts: bool = False) -> pl.DataFrame:
        """One row per rollout with the columns of the ledger; where a run has no ledger, made from its texts.

        Groups without rollouts have no row. Absent values are null.

        Raises:
            NewerSchemaError: as `groups`.
        """
        import polars as pl

        from rg_env.dump import frames

        parts = [frames.one_row_per_rollout(groups) for run in self.runs for groups in self._group_frames(run)]
        frame = pl.concat(parts)
        return frame if all_attempts else frames.last_attempts_only(frame)

    def _group_frames(self, run: Run) -> Iterator[pl.DataFrame]:
        from rg_env.dump import frames

        for file in run.files:
            if file.kind is FileKind.LEDGER:
                yield frames.read_ledger(file.path, partial(self._ledger_lines_in, file))
            elif file.kind.holds_text and not run.has_ledger:
                yield frames.from_records(LedgerRecord.of(group, file.kind, None) for group in self._groups_in(file))

    def _ledger_lines_in(self, file: DumpFile) -> Iterator[LedgerRecord]:
        return self._records_in(file, lambda line, _: ledger_from_line(line))

    def _groups_in(self, file: DumpFile) -> Iterator[GroupRecord]:
        phase = Phase.EVAL if file.kind is FileKind.EVAL else Phase.TRAIN

        def parse(line: bytes, number: int) -> GroupRecord:
            return from_line(line, run_id=file.run_id, group_id=f"{file.path.stem}:{number}", phase=phase)

        return self._records_in(file, parse)

    def _records_in(self, file: DumpFile, parse: Callable[[bytes, int], _R]) -> Iterator[_R]:
        for number, line in _lines(file):
            try:
                yield parse(line, number)
            except BadLineError as error:
                self._problems.setdefault((file.path, number), Problem(file.path, number, str(error)))
            except NewerSchemaError as error:
                raise NewerSchemaError(f"{file.path.name}, line {number}: {error}") from None

    def _is_last(self, run: Run, record: GroupRecord | LedgerRecord) -> bool:
        last = self._last_attempts[run.run_id].get((record.phase, record.step), record.attempt)
        return record.attempt == last

    @cached_property
    def _last_attempts(self) -> dict[str, dict[tuple[str, int | None], int]]:
        """For every run: (phase, step) → its last attempt, where there are several."""
        import polars as pl

        result: dict[str, dict[tuple[str, int | None], int]] = {}
        for run in self.runs:
            last = result.setdefault(run.run_id, {})
            for groups in self._group_frames(run) if run.has_ledger else ():
                for phase, step, attempt in (
                    groups.drop_nulls("step").group_by("phase", "step").agg(pl.col("attempt").max()).iter_rows()
                ):
                    last[phase, step] = max(attempt, last.get((phase, step), 0))
        return result


def open_run(*paths: str | Path) -> Dump:
    """Find the dumps in folders and files.

    Args:
        paths: dump folders, which are searched for Atropos' file names, and single files, whose name is free.

    Raises:
        DumpError: a path does not exist, or there is no dump in it.
    """
    if not paths:
        raise DumpError("no dump folder or file named")
    files: dict[Path, DumpFile] = {}
    for path in map(Path, paths):
        files |= {file.path: file for file in _find(path)}
    by_run = groupby(
        sorted(files.values(), key=lambda file: (file.run_id, list(FileKind).index(file.kind), file.batch)),
        key=lambda file: file.run_id,
    )
    runs = []
    for run_id, found in by_run:
        mine = tuple(found)
        runs.append(Run(run_id, mine, read_manifest(mine[0].path.parent, run_id)))
    return Dump(tuple(runs))


def _find(path: Path) -> Sequence[DumpFile]:
    try:
        if path.is_dir():
            if found := list_files(path):
                return found
            raise DumpError(f"no dump in {path}: its files would be named {PREFIX}_*.jsonl")
        with path.open("rb"):
            pass
    except OSError as error:
        raise DumpError(f"{path} cannot be read ({error.strerror}): name a dump folder or a .jsonl file") from None
    return [parse_name(path) or DumpFile(path, FileKind.ROLLOUTS, path.stem, 0, part=False)]


def _lines(file: DumpFile) -> Iterator[tuple[int, bytes]]:
    """The non-empty lines with their numbers, from 1."""
    try:
        with open_lines(file.path) as lines:
            for number, line in enumerate(lines, 1):
                if not line.isspace():
                    yield number, line
    except OSError as error:
        raise DumpError(f"{file.path} cannot be read ({error.strerror})") from None
