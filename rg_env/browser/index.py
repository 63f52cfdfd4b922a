"""The index: a row for every group with a text, with the position of its line and the ledger's columns.

Invariant: a row has the values of `Dump.frames`, so the browser shows what statistics count; the row of a damaged line
holds only the reason. Rows of unchanged files come from the cache (`cache`), which is optional.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from rg_env.browser.cache import Cache, states_of
from rg_env.dump.files import DumpFile
from rg_env.dump.open_file import open_lines
from rg_env.dump.read.chunks import Part, bundles
from rg_env.dump.read.dump import Dump
from rg_env.dump.read.frames import GROUP_SCHEMA, ROLLOUT_SCHEMA, read_groups
from rg_env.dump.read.lines import Line, lines_of, parse
from rg_env.dump.schema import BadLineError, GroupRecord
from rg_env.dump.strings import escape
from rg_env.errors import DumpError
from rg_env.scoring.types import UNCOUNTED

_NULL_IF_UNANSWERED = pl.when(pl.element().is_in(UNCOUNTED)).then(None).otherwise(0.0)
_AT_ONCE = 1 << 23
"""Bytes that are indexed at a time: enough for a first screen, and about 30 ms of work."""

WORTH_CACHING = 32_000_000
"""Bytes of dump files from which rows are cached; fewer are read again as quickly."""

_PLACE: dict[str, pl.DataType] = {
    "file": pl.Int32(),
    "line": pl.Int32(),
    "offset": pl.Int64(),
    "length": pl.Int32(),
    "problem": pl.String(),
}
GROUP_SCORES: dict[str, pl.DataType] = {"best": pl.Float64(), "mean": pl.Float64(), "worst": pl.Float64()}
SCHEMA: dict[str, pl.DataType] = (
    _PLACE | GROUP_SCHEMA | {name: pl.List(dtype) for name, dtype in ROLLOUT_SCHEMA.items()} | GROUP_SCORES
)
"""Columns of a row. `file` is the index in `text_files`; `line` counts from 1; `offset` and `length` are in bytes of
uncompressed data. Then the columns of the ledger, those of rollouts as lists; `best`, `mean` and `worst` are base
scores in [0, 1]. If `problem` is not null, the columns after it are null."""
FOUND_BY = ("file", "line", "offset", "length", "group_id")
"""The columns of a row that `read_row` needs."""


class ChangedError(DumpError):
    """A line is no longer at the recorded position, because the file was changed or replaced."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows, and the progress in bytes of dump files."""

    rows: pl.DataFrame
    done: int
    total: int


def text_files(dump: Dump) -> list[DumpFile]:
    """The files with texts, in the order in which `Dump.groups` reads them."""
    return [file for run in dump.runs for file in run.files if file.kind.holds_text]


def index_rows(dump: Dump, *, cached: bool = True) -> Iterator[Chunk]:
    """The rows of all text files: first the cached ones, then those of the files that have to be read.

    Args:
        dump: from `open_run`.
        cached: use and update the cache, which takes memory for all rows; otherwise memory is constant.

    Raises:
        NewerSchemaError, DumpError: as `Dump.groups`.
    """
    files = text_files(dump)
    states = states_of([file.path for file in files])
    sizes = states["size"].to_list()
    total = sum(sizes)
    cache = Cache(states, SCHEMA) if cached and total >= WORTH_CACHING else None
    rows = [cache.rows()] if cache is not None else []
    known = {number for frame in rows for number in frame["file"]}
    done = sum(sizes[number] for number in known)
    if known:
        yield Chunk(rows[0], done, total)
    unknown = {file: number for number, file in enumerate(files) if number not in known}
    for found, read in _scan(unknown):
        if cache is not None:
            rows.append(found)
        yield Chunk(found, done + sum(min(sizes[unknown[file]], size) for file, size in read.items()), total)
    if cache is not None and len(rows) > 1:
        cache.save(pl.concat(rows))


def last_attempts_only(dump: Dump, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of groups that no later attempt has repeated. Reads the ledger the first time."""
    run_ids = [file.run_id for file in text_files(dump)]
    keys = ["file", "phase", "step", "attempt"]
    replaced = [
        (file, phase, step, attempt)
        for file, phase, step, attempt in rows.select(keys).unique().iter_rows()
        if phase is not None and not dump.is_last_attempt(run_ids[file], phase, step, attempt)
    ]
    if not replaced:
        return rows
    old = pl.DataFrame(replaced, schema={key: SCHEMA[key] for key in keys}, orient="row")
    return rows.join(old, on=keys, how="anti", nulls_equal=True, maintain_order="left")


def read_row(files: Sequence[DumpFile], row: Mapping[str, Any]) -> GroupRecord:
    """Read the group of a row.

    Args:
        files: `text_files` of the dump that the row comes from.
        row: `FOUND_BY` at least.

    Raises:
        ChangedError: the line now holds another group, or none.
        DumpError: the file cannot be read.
    """
    return group_in(read_line(files, row), files, row)


def read_line(files: Sequence[DumpFile], row: Mapping[str, Any]) -> bytes:
    """Read the line of a row.

    Raises:
        DumpError: the file cannot be read.
    """
    path = files[row["file"]].path
    try:
        with open_lines(path) as lines:
            lines.seek(row["offset"])
            return lines.read(row["length"])
    except OSError as error:
        raise DumpError(f"{path} cannot be read ({error.strerror})") from None


def group_in(line: bytes, files: Sequence[DumpFile], row: Mapping[str, Any]) -> GroupRecord:
    """Parse the line that was read for a row.

    Raises:
        ChangedError: it is not the group of the row.
    """
    file = files[row["file"]]
    try:
        group = parse(file, row["line"], line)
    except BadLineError:
        group = None
    if not isinstance(group, GroupRecord) or escape(group.group_id) != row["group_id"]:
        raise ChangedError(f"{file.path.name} has changed since it was read; reload it")
    return group


def _scan(files: Mapping[DumpFile, int]) -> Iterator[tuple[pl.DataFrame, Mapping[DumpFile, int]]]:
    """Yield rows of files, given with their numbers, and how many bytes of each file have been read."""
    read = dict.fromkeys(files, 0)
    for parts in bundles(files, _AT_ONCE):
        placed = []
        for part in parts:
            placed.append((part, files[part.file], read[part.file]))
            read[part.file] += len(part.data)
        yield _rows(placed), read


def _rows(placed: Sequence[tuple[Part, int, int]]) -> pl.DataFrame:
    """The rows of parts, given with the numbers of their files and their offsets."""
    problems = {(part.file, part.first_line): part.damage for part, *_ in placed if part.damage is not None}

    def line_by_line(part: Part) -> Iterator[Line]:
        for line in lines_of(part):
            if isinstance(line.record, GroupRecord):
                yield line
            else:
                problems[part.file, line.number] = str(line.fault)

    groups = read_groups([part for part, *_ in placed], line_by_line)
    scores = (pl.col("base_score") + pl.col("status").list.eval(_NULL_IF_UNANSWERED)).list
    groups = groups.with_columns(best=scores.max(), mean=scores.mean(), worst=scores.min())
    places: list[tuple[int, int, int, int, str | None]] = []
    for part, file, start in placed:
        for line_number, at, line in part.placed():
            places.append((file, line_number, start + at, len(line), problems.get((part.file, line_number))))
        if part.damage is not None:
            places.append((file, part.first_line, start, 0, part.damage))
    lines = pl.DataFrame(places, schema=_PLACE, orient="row")
    if not problems:
        return lines.hstack(groups).select(*SCHEMA)
    sound = lines.filter(pl.col("problem").is_null()).hstack(groups)
    damaged = lines.filter(pl.col("problem").is_not_null())
    return pl.concat([sound, damaged], how="diagonal").select(*SCHEMA).sort("file", "line")
