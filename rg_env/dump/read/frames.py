"""Dump files as polars frames with one row per rollout, for statistics.

Invariant: the same rows as from a loop over the records, with null for absent numbers. polars reads the lines; of a
chunk that it refuses, or that contains anything but valid records, it reads those that the codec takes, so that a
damaged line affects no other line. The columns are derived from the fields of `rg_env.dump.schema`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import polars as pl

from rg_env.dump.codec import Column, columns_of
from rg_env.dump.read.chunks import Part
from rg_env.dump.read.lines import Line
from rg_env.dump.schema import (
    MESSAGE_KEYS,
    ROLLOUT_FACTS,
    SCHEMA_VERSION,
    FileKind,
    GroupRecord,
    RolloutFacts,
    RolloutRecord,
)


def _type(column: Column) -> pl.DataType:
    return {bool: pl.Boolean(), int: pl.Int64(), float: pl.Float64()}.get(column.type, pl.String())


def schema_of(record: Any) -> dict[str, pl.DataType]:
    """The columns of a record's class, and the type of each."""
    return {name: _type(column) for name, column in columns_of(record).items()}


_LEDGER = FileKind.LEDGER.record
GROUP_SCHEMA = {name: dtype for name, dtype in schema_of(_LEDGER).items() if name not in ROLLOUT_FACTS}
"""Columns that hold one value for a group."""

ROLLOUT_SCHEMA = schema_of(RolloutFacts)
"""Columns that hold one value for a rollout: lists in the ledger's lines, plain in every frame."""

GROUP_TEXT_SCHEMA = {n: dtype for n, dtype in schema_of(GroupRecord).items() if n not in GROUP_SCHEMA}
ROLLOUT_TEXT_SCHEMA = {n: dtype for n, dtype in schema_of(RolloutRecord).items() if n not in ROLLOUT_SCHEMA} | {
    "conversation": pl.List(pl.Struct(dict.fromkeys(MESSAGE_KEYS, pl.String())))
}
"""With `GROUP_TEXT_SCHEMA`: columns that only files with texts have."""

SCHEMA = GROUP_SCHEMA | ROLLOUT_SCHEMA
TEXT_SCHEMA = GROUP_SCHEMA | GROUP_TEXT_SCHEMA | ROLLOUT_SCHEMA | ROLLOUT_TEXT_SCHEMA

GROUP_INDEX = "group_index"
"""Column with the number of the group in the frame."""

REPLACED_BY = ("phase", "step", "attempt")
"""Columns that decide whether a later attempt replaced a row."""

_OF_GROUP = GROUP_SCHEMA | GROUP_TEXT_SCHEMA
_OF_ROLLOUT = ROLLOUT_SCHEMA | ROLLOUT_TEXT_SCHEMA
_COLUMNS = {**columns_of(GroupRecord), **columns_of(_LEDGER), **columns_of(RolloutRecord)}
_CLOSED = {name: pl.Enum(column.words) for name, column in _COLUMNS.items() if column.words}
"""Columns of a fixed set of values: polars refuses others."""

LineByLine = Callable[[Part], Iterable[Line]]
"""Reads the lines of a part that polars cannot read; yields those that are records."""

_PLACE = ("text_batch", "text_offset")


class _UnsoundError(Exception):
    """A chunk contains something that only the codec can read."""


def read_bundle(parts: Sequence[Part], columns: Collection[str], line_by_line: LineByLine) -> pl.DataFrame:
    """The rollouts of a bundle: one row each, in order. Groups without rollouts have no row.

    Args:
        parts: of one run and kind, see `chunks.bundles`.
        columns: which of `SCHEMA`, or for files with texts of `TEXT_SCHEMA`, to read.
        line_by_line: called for the parts that polars cannot read.

    Returns:
        `GROUP_INDEX`, counted within the bundle, and `columns` in that order.
    """
    kind = parts[0].file.kind
    try:
        return _tidy(_ours(parts, kind, columns), columns)
    except (_UnsoundError, pl.exceptions.PolarsError):
        frames = (_tidy(_read_part(part, columns, line_by_line), columns) for part in parts)
        return pl.concat(list(count_on(frames)))


def count_on(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """The frames, with `GROUP_INDEX` unique over all of them."""
    start = 0
    for frame in frames:
        yield frame.with_columns(pl.col(GROUP_INDEX) + start)
        start += 1 + (frame.select(pl.col(GROUP_INDEX).max()).item() or 0)


def replaced(frames: Iterable[pl.DataFrame]) -> frozenset[tuple[str, int | None, int]]:
    """The `REPLACED_BY` of rows that a later attempt replaced: all steps from the first one that it trained again, even
    if it did not get as far. Rows without a step neither replace others nor are replaced.
    """
    seen = pl.concat(
        [pl.DataFrame(schema={name: SCHEMA[name] for name in REPLACED_BY})]
        + [frame.select(REPLACED_BY).drop_nulls("step").unique() for frame in frames]
    ).unique()
    training = seen.filter(pl.col("phase") == "train").group_by("attempt").agg(pl.col("step").min()).rows()

    def went_back_to(attempt: int) -> int | None:
        return min((step for later, step in training if later > attempt), default=None)

    back = {attempt: went_back_to(attempt) for attempt in seen["attempt"].unique()}
    abandoned = pl.col("step") >= pl.col("attempt").replace_strict(back, return_dtype=pl.Int64())
    repeated = pl.col("attempt") < pl.col("attempt").max().over("phase", "step")
    return frozenset(seen.filter(abandoned.fill_null(False) | repeated).iter_rows())


def without(frame: pl.DataFrame, replaced: Collection[tuple[str, int | None, int]]) -> pl.DataFrame:
    """The rows whose `REPLACED_BY` is not in `replaced`."""
    schema = {name: SCHEMA[name] for name in REPLACED_BY}
    old = pl.DataFrame(list(replaced), schema=schema, orient="row")
    return frame.join(old, on=REPLACED_BY, how="anti", maintain_order="left")


def _read_part(part: Part, columns: Collection[str], line_by_line: LineByLine) -> pl.DataFrame:
    with suppress(_UnsoundError, pl.exceptions.PolarsError):
        return _ours([part], part.file.kind, columns)
    lines = list(line_by_line(part))
    groups = _parse(b"".join(line.raw + b"\n" for line in lines), part.file.kind, {"base_score", *columns})
    if part.file.kind.holds_text:
        groups = _with_places(groups, part.file.kind, [(part.file.batch, line.offset) for line in lines])
    return _explode(groups)


def _with_places(groups: pl.DataFrame, kind: FileKind, places: Sequence[tuple[int, int]]) -> pl.DataFrame:
    """The groups of files with texts, with the columns of the ledger that say where a text is."""
    where = pl.DataFrame(list(places), schema={name: SCHEMA[name] for name in _PLACE}, orient="row")
    return groups.with_columns(where, text=pl.lit(str(kind)), text_reason=pl.lit(""))


def _ours(parts: Sequence[Part], kind: FileKind, columns: Collection[str]) -> pl.DataFrame:
    """The rollouts of lines that are all whole and in our format.

    Raises:
        _UnsoundError: they are not.
    """
    data = b"".join(part.data for part in parts)
    groups = _parse(data, kind, {"schema_version", "outcome", "base_score", "status", *columns})
    _check(groups, [pl.col("schema_version").is_between(1, SCHEMA_VERSION).all()])
    if kind.holds_text:
        places = [(part.file.batch, part.offset + at) for part in parts for _, at, _ in part.placed()]
        groups = _with_places(groups, kind, places)
    rollouts = _explode(groups)
    _check(rollouts)
    return rollouts


def _check(frame: pl.DataFrame, conditions: Sequence[pl.Expr] = ()) -> None:
    """Raise `_UnsoundError` unless all conditions hold and no required value is null."""
    lists = {name for name, dtype in frame.schema.items() if isinstance(dtype, pl.List)}
    filled = [name for name in frame.columns if name in lists or name not in _COLUMNS or not _COLUMNS[name].may_be_null]
    if not frame.select(pl.all_horizontal(*conditions, *(pl.col(name).is_not_null().all() for name in filled))).item():
        raise _UnsoundError


def _parse(data: bytes, kind: FileKind, columns: Collection[str]) -> pl.DataFrame:
    """One row per line, with lists for the rollouts. Missing keys are null."""
    of_rollout = {name: _CLOSED.get(name, dtype) for name, dtype in _OF_ROLLOUT.items() if name in columns}
    schema: dict[str, pl.DataType] = {n: _CLOSED.get(n, dtype) for n, dtype in _OF_GROUP.items() if n in columns}
    if kind.holds_text:
        schema = {name: dtype for name, dtype in schema.items() if name not in ("text", "text_reason", *_PLACE)}
        schema["rollouts"] = pl.List(pl.Struct(of_rollout))
    else:
        schema |= {name: pl.List(dtype) for name, dtype in of_rollout.items()}
    if not data or data.isspace():
        return pl.DataFrame(schema=schema)
    return pl.scan_ndjson(io.BytesIO(data), schema=schema).collect(engine="streaming")


def _explode(groups: pl.DataFrame) -> pl.DataFrame:
    """One row per rollout, with `GROUP_INDEX`."""
    groups = groups.with_row_index(GROUP_INDEX).with_columns(pl.col(GROUP_INDEX).cast(pl.Int64))
    if "rollouts" in groups.columns:
        return groups.filter(pl.col("rollouts").list.len() > 0).explode("rollouts").unnest("rollouts")
    lists = [name for name, dtype in groups.schema.items() if isinstance(dtype, pl.List)]
    return groups.filter(pl.col(lists[0]).list.len() > 0).explode(lists)


def _tidy(rollouts: pl.DataFrame, columns: Collection[str]) -> pl.DataFrame:
    """The requested columns."""
    types = pl.Schema({name: TEXT_SCHEMA[name] for name in columns})
    return rollouts.select(GROUP_INDEX, *columns).cast(types)
