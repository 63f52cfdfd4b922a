"""A row for every group whose text was kept: where its line lies, and the few columns that people filter by.

Invariant: a row says what `group_from` makes of the line at its place, so that what is browsed is what every other
command reads; a damaged line has a row that says why and no more. What an earlier reading noted beside the dump
(`index_file`) is used for the files that are still what they were, and for those only: it makes the next reading
quick and is never needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from rg_env.dump.beside import WORTH_KEEPING, FileState
from rg_env.dump.codec import BadLineError, NewerSchemaError, group_from
from rg_env.dump.files import DumpFile
from rg_env.dump.index_file import Stored, load, save
from rg_env.dump.lines import open_lines
from rg_env.dump.reader import Dump
from rg_env.dump.schema import GroupRecord
from rg_env.errors import DumpError

ROWS_AT_ONCE = 500
"""Groups in a chunk: enough for a first screen."""
SCHEMA: dict[str, pl.DataType] = {
    "file": pl.Int32(),
    "line": pl.Int32(),
    "offset": pl.Int64(),
    "length": pl.Int32(),
    "problem": pl.String(),
    "group_id": pl.String(),
    "run_id": pl.String(),
    "attempt": pl.Int32(),
    "phase": pl.String(),
    "step": pl.Int64(),
    "task": pl.String(),
    "outcome": pl.String(),
    "rollouts": pl.Int32(),
    "best": pl.Float64(),
    "mean": pl.Float64(),
    "worst": pl.Float64(),
    "violations": pl.List(pl.String()),
    "statuses": pl.List(pl.String()),
}
"""Columns of a row. `file` counts the files of `text_files`; `line` from 1; `offset` and `length` in bytes; `best`,
`mean` and `worst` are base scores in [0, 1]; `violations` and `statuses` those that occur in the group (`ok` aside).
Where `problem` is not null the columns after it are."""


class ChangedError(DumpError):
    """A line is no longer where its row says: the file was written or replaced since."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows, and how far the reading has come, in bytes of dump files."""

    rows: pl.DataFrame
    done: int
    total: int


def text_files(dump: Dump) -> list[DumpFile]:
    """The files that hold texts, in the order in which `Dump.groups` reads them."""
    return [file for run in dump.runs for file in run.files if file.kind.holds_text]


def index_rows(dump: Dump, *, keep: bool = True) -> Iterator[Chunk]:
    """The rows of all text files: first those that an index beside the dump holds, then what has to be read.

    Args:
        dump: from `open_run`.
        keep: leave what was read beside the dump, where there is enough of it and the folder lets us.

    Raises:
        NewerSchemaError, DumpError: as `Dump.groups`.
    """
    files = text_files(dump)
    states = [FileState.of(file.path) for file in files]
    total = sum(state.size for state in states)
    known: dict[Path, Stored] = {folder: load(folder, SCHEMA) for folder in {file.path.parent for file in files}}
    parts: dict[int, pl.DataFrame] = {}
    for number, (file, state) in enumerate(zip(files, states, strict=True)):
        if (rows := known[file.path.parent].rows_of(state)) is not None:
            parts[number] = rows.with_columns(file=pl.lit(number, pl.Int32))
    done = sum(states[number].size for number in parts)
    if parts:
        yield Chunk(pl.concat(parts.values()), done, total)
    for number in range(len(files)):
        if number in parts:
            continue
        chunks = []
        for rows, position in _scan(files[number], number):
            chunks.append(rows)
            yield Chunk(rows, done + min(position, states[number].size), total)
        parts[number] = pl.concat(chunks) if chunks else pl.DataFrame(schema=SCHEMA)
        done += states[number].size
    for folder, stored in known.items() if keep else ():
        mine = {states[n]: parts[n] for n, file in enumerate(files) if file.path.parent == folder}
        if sum(state.size for state in mine) >= WORTH_KEEPING and not mine.keys() <= stored.parts.keys():
            save(folder, mine | stored.others(folder, mine))


def last_attempts_only(dump: Dump, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of groups that no later attempt has done again. Reads the ledger, the first time."""
    run_ids = [file.run_id for file in text_files(dump)]
    keys = ["file", "phase", "step", "attempt"]
    last = [
        (file, phase, step, attempt)
        for file, phase, step, attempt in rows.select(keys).unique().iter_rows()
        if phase is None or dump.is_last_attempt(run_ids[file], phase, step, attempt)
    ]
    schema = {key: SCHEMA[key] for key in keys}
    kept = pl.DataFrame(last, schema=schema, orient="row")
    return rows.join(kept, on=keys, how="semi", nulls_equal=True, maintain_order="left")


def read_row(files: Sequence[DumpFile], row: Mapping[str, Any]) -> GroupRecord:
    """The group that a row stands for.

    Args:
        files: `text_files` of the dump that the row comes from.
        row: `file`, `line`, `offset`, `length` and `group_id` at least.

    Raises:
        ChangedError: another group, or none, is there now.
        DumpError: the file cannot be read.
    """
    return group_in(read_line(files, row), files, row)


def read_line(files: Sequence[DumpFile], row: Mapping[str, Any]) -> bytes:
    """The line at a row's place, as it is.

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
    """The group in the line that was read for a row.

    Raises:
        ChangedError: it is not the row's.
    """
    file = files[row["file"]]
    try:
        group = group_from(file, row["line"], line)
    except BadLineError:
        group = None
    if group is None or _storable(group.group_id) != row["group_id"]:
        raise ChangedError(f"{file.path.name} has changed since it was read: read it again")
    return group


def _scan(file: DumpFile, number: int) -> Iterator[tuple[pl.DataFrame, int]]:
    """The rows of a file, some at a time, and how many bytes have been read."""
    rows: list[tuple[Any, ...]] = []
    offset = 0
    try:
        with open_lines(file.path) as lines:
            for line_number, line in enumerate(lines, 1):
                if not line.isspace():
                    rows.append((number, line_number, offset, len(line), *_columns(file, line, line_number)))
                offset += len(line)
                if len(rows) == ROWS_AT_ONCE:
                    yield _frame(rows), offset
                    rows = []
    except OSError as error:
        raise DumpError(f"{file.path} cannot be read ({error.strerror})") from None
    if rows:
        yield _frame(rows), offset


def _frame(rows: Iterable[tuple[Any, ...]]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=SCHEMA, orient="row")


def _whole(value: object) -> int | None:
    """A whole number as polars can hold it: in foreign files a step may be anything, and anything else has none."""
    return value if isinstance(value, int) and 0 <= value < 2**31 else None


def _storable(text: object) -> str:
    """A text as polars can hold it: the halves of characters that UTF-8 cannot carry become question marks."""
    return str(text).encode("utf-8", "replace").decode()


def _columns(file: DumpFile, line: bytes, number: int) -> tuple[Any, ...]:
    try:
        group = group_from(file, number, line)
    except BadLineError as error:
        return (str(error), *(None,) * (len(SCHEMA) - 5))
    except NewerSchemaError as error:
        raise NewerSchemaError(f"{file.path.name}, line {number}: {error}") from None
    scores = [rollout.base_score for rollout in group.rollouts if not math.isnan(rollout.base_score)]
    return (
        None,
        _storable(group.group_id),
        _storable(group.run_id),
        _whole(group.attempt),
        _storable(group.phase),
        _whole(group.step),
        _storable(group.task),
        group.outcome.value,
        len(group.rollouts),
        max(scores, default=None),
        sum(scores) / len(scores) if scores else None,
        min(scores, default=None),
        sorted({rollout.violation.value for rollout in group.rollouts if rollout.violation}),
        sorted({rollout.status.value for rollout in group.rollouts} - {"ok"}),
    )
