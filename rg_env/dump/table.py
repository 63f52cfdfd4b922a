"""A dump read from the table that `rg-env dumps export parquet` writes.

Invariant: rows and values are those of the ledger when it was exported, and no others are read. Texts, settings and
records of training are read from the files of the same runs in the table's folder, if they are there. Memory grows with
the number of groups, and only if texts are read.
Not covered: what the ledger lacked then, which the table does not tell: only texts are reported as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import msgspec
import polars as pl

from rg_env.base.errors import DumpError
from rg_env.base.wording import counted
from rg_env.dump.contents import Contents, Findings, Place
from rg_env.dump.files import DumpFile, Line, list_files
from rg_env.dump.frames import GROUP, GROUP_SCHEMA, RECOVERED, ROLLOUT_SCHEMA, RUN, SCHEMA, Batch, all_of
from rg_env.dump.manifest import read_manifest
from rg_env.dump.reader import Dump
from rg_env.dump.run_files import Run
from rg_env.dump.schema import FileKind, GroupRecord, LedgerRecord

PARTS_OF_GROUPS = "rg_env.parts_of_groups"
"""Key in the file's metadata where conditions may have left out some rollouts of a group when it was exported."""
_ROWS = 200_000
"""Rows that are in memory at a time."""


@dataclass(repr=False)
class TableDump(Dump):
    """The runs of a table; `path` is its file, `has_parts` says whether groups may lack rollouts in it."""

    path: Path = field(kw_only=True)
    has_parts: bool = field(default=False, kw_only=True)

    @property
    def whole_groups(self) -> bool:
        return super().whole_groups and not self.has_parts

    @property
    def has_every_group(self) -> bool | None:
        return None

    def findings(self, *, texts: bool = True) -> Findings:
        result = Findings()
        if texts:
            for run in self.runs:
                self._add_texts_missing(run, result)
        return result

    def _add_texts_missing(self, run: Run, result: Findings) -> None:
        """Add how many texts of a run were in its files when the table was exported, and are not beside it."""
        rows = pl.scan_parquet(self.path).filter(pl.col("run_id") == run.run_id, pl.col("text") != "")
        named = rows.select(pl.col("group_id").unique()).collect(engine="streaming")["group_id"]
        there = self._contents_of(run).texts()
        missing = sum(group_id not in there for group_id in named)
        if missing:
            text = f"the text of {counted(missing, 'group')} is not beside it: move it into the folder of the dump"
            result.add("no_text", Place(f"{self.path.name}, run {run.run_id}"), text)

    def repeated(self) -> list[int]:
        return []  # what a later attempt replaced was not exported

    def ledger(self) -> Iterator[LedgerRecord]:
        names = [name for name in GROUP_SCHEMA if name not in ("run_id", "group_id")]
        for run in self.runs:
            for frame in _whole_groups(self._frames_of(run, list(SCHEMA), texts=False)):
                frame = frame.filter(*(condition.test for condition in self.conditions))
                by_group = frame.group_by("run_id", "group_id", maintain_order=True)
                for row in by_group.agg(pl.col(names).first(), *ROLLOUT_SCHEMA).iter_rows(named=True):
                    yield msgspec.convert(row, LedgerRecord)

    def read_batches[T](
        self, columns: Collection[str], reduce: Callable[[Batch], T], types: Mapping[str, pl.DataType] | None = None
    ) -> list[T]:
        needed = list(dict.fromkeys(["group_id", *columns, *self._tested_columns()]))
        results, seen = [], [pl.Series(dtype=pl.UInt64)]
        for number, run in enumerate(self.runs):
            for frame in _whole_groups(self._frames_of(run, [name for name in needed if name in SCHEMA], texts=False)):
                batch = self._batch(frame, number, types or {})
                seen.append((batch.groups["group_id"] + run.run_id).hash())
                results.append(reduce(batch))
        every = pl.concat(seen)
        if every.n_unique() < len(every):
            raise DumpError(f"{self.path}: the rows of a group are not together; export the dump again")
        return results

    def _batch(self, frame: pl.DataFrame, run: int, types: Mapping[str, pl.DataType]) -> Batch:
        is_first = (pl.col("group_id") != pl.col("group_id").shift()).fill_null(True)
        frame = frame.with_columns(is_first.alias("first"))
        frame = frame.with_columns((pl.col("first").cum_sum() - 1).cast(pl.UInt32).alias(GROUP))
        of_groups = [name for name in frame.columns if name in GROUP_SCHEMA]
        source = {RUN: pl.lit(run, pl.Int64), RECOVERED: pl.lit(False)}
        groups = frame.filter("first").select(*of_groups, **source)
        rollouts = frame
        if self.conditions:
            rollouts = frame.filter(all_of([condition.test for condition in self.conditions]))
        rollouts = rollouts.drop(*of_groups, "first")
        return Batch(_cast(groups, types), _cast(rollouts, types))

    def frame_of(self, group_ids: Collection[str]) -> pl.DataFrame:
        rows = pl.scan_parquet(self.path).select(list(SCHEMA)).filter(pl.col("group_id").is_in(list(group_ids)))
        return rows.filter(*(condition.test for condition in self.conditions)).collect(engine="streaming")

    @cached_property
    def _repetitions(self) -> dict[tuple[str, str], tuple[int, ...]]:
        """The numbers of the rollouts that the table has of each group, by run id and group id."""
        rows = pl.scan_parquet(self.path).group_by("run_id", "group_id").agg("repetition").collect(engine="streaming")
        # Most groups have the same numbers, which are held once.
        held: dict[tuple[int, ...], tuple[int, ...]] = {}
        kept = {}
        for run_id, group_id, repetition in rows.iter_rows():
            numbers = tuple(sorted(repetition))
            kept[run_id, group_id] = held.setdefault(numbers, numbers)
        return kept

    def _lines(self, run: Run, kinds: Iterable[FileKind]) -> Iterator[Line]:
        for line in super()._lines(run, kinds):
            group = line.record
            if not isinstance(group, GroupRecord):
                yield line
            elif numbers := self._repetitions.get((run.run_id, group.group_id)):
                rollouts = [rollout for rollout in group.rollouts if rollout.repetition in numbers]
                part = msgspec.structs.replace(group, rollouts=rollouts)
                yield msgspec.structs.replace(line, record=part)

    def _contents_of(self, run: Run) -> Contents:
        # Of the files beside the table: they have no ledger.
        return super()._contents_of(replace(run, files=tuple(file for file in run.files if file.path != self.path)))

    def _frames_of(self, run: Run, columns: list[str], texts: bool) -> Iterator[pl.DataFrame]:
        if texts:
            return super()._frames_of(run, columns, texts)
        rows = pl.scan_parquet(self.path)
        if len(self.runs) > 1:
            rows = rows.filter(pl.col("run_id") == run.run_id)
        return iter(rows.select(columns).collect_batches(chunk_size=_ROWS))


def _cast(frame: pl.DataFrame, types: Mapping[str, pl.DataType]) -> pl.DataFrame:
    return frame.cast({name: kind for name, kind in types.items() if name in frame.columns})


def _whole_groups(frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield the rows in frames that end where a group ends."""
    held: list[pl.DataFrame] = []
    for frame in frames:
        if not frame.height:
            continue
        # The last group of a frame may go on in the next one.
        others = (frame["group_id"] != frame["group_id"][-1]).arg_true()
        if len(others):
            end = others[-1] + 1
            yield pl.concat([*held, frame.head(end)])
            held, frame = [], frame.slice(end)
        held.append(frame)
    if held:
        yield pl.concat(held)


def open_table(path: Path) -> TableDump:
    """Open a table, with the files of its runs in the same folder.

    Raises:
        DumpError: it cannot be read, or is another table.
    """
    try:
        schema = pl.scan_parquet(path).collect_schema()
        lacking = [name for name, dtype in SCHEMA.items() if schema.get(name) != dtype]
        if lacking:
            raise DumpError(
                f"{path} lacks the column {lacking[0]} of a table that `rg-env dumps export parquet` writes: "
                "export the dump again"
            )
        found = pl.scan_parquet(path).select(pl.col("run_id").unique(maintain_order=True))
        run_ids = found.collect(engine="streaming")["run_id"].to_list()
        has_parts = PARTS_OF_GROUPS in pl.read_parquet_metadata(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).partition("\n")[0]
        raise DumpError(f"{path} cannot be read as Parquet ({reason}): export the dump again") from None
    if not run_ids:
        raise DumpError(f"{path} has no rollouts")
    runs = []
    for run_id in run_ids:
        files = [DumpFile(path, FileKind.LEDGER, run_id, 0)]
        files += [file for file in list_files(path.parent, run_id) if file.kind is not FileKind.LEDGER]
        runs.append(Run(run_id, tuple(files), read_manifest(path.parent, run_id)))
    return TableDump(tuple(runs), path=path, has_parts=has_parts)
