"""Dump files as polars frames, one row per rollout: what statistics are made of.

Invariant: the same rows as a loop over the records gives, with null for what is absent. polars reads our own lines; a
chunk that it refuses, or in which something does not look like a record of ours, is read line by line by the codec
instead, so that a damaged line costs itself only. Strings that UTF-8 cannot carry stay escaped as they are in the file
(see `codec`). The columns follow from the fields of `rg_env.dump.schema`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import polars as pl

from rg_env.dump.codec import Record, to_line
from rg_env.dump.columns import Column, layout_of
from rg_env.dump.read.chunks import Part
from rg_env.dump.schema import (
    MESSAGE_KEYS,
    SCHEMA_VERSION,
    FileKind,
    GroupRecord,
    LedgerRecord,
    RolloutFacts,
    RolloutRecord,
    TrainedRecord,
)


def _type(column: Column) -> pl.DataType:
    return {bool: pl.Boolean(), int: pl.Int64(), float: pl.Float64()}.get(column.type, pl.String())


def _schema(record: type[Any]) -> dict[str, pl.DataType]:
    layout = layout_of(record)
    schema: dict[str, pl.DataType] = {name: _type(column) for name, column in layout.columns.items()}
    message = pl.Struct(dict.fromkeys(MESSAGE_KEYS, pl.String()))
    return schema | {name: pl.List(message) for name in layout.conversations}


GROUP_SCHEMA = _schema(LedgerRecord)
"""Columns that hold one value for a group."""

ROLLOUT_SCHEMA = _schema(RolloutFacts)
"""Columns that hold one value for a rollout: lists in the ledger's lines, plain in every frame."""

GROUP_TEXT_SCHEMA = {n: dtype for n, dtype in _schema(GroupRecord).items() if n not in GROUP_SCHEMA}
ROLLOUT_TEXT_SCHEMA = {n: dtype for n, dtype in _schema(RolloutRecord).items() if n not in ROLLOUT_SCHEMA}
"""With `GROUP_TEXT_SCHEMA`: what only the files with texts have."""

TRAINED_SCHEMA = _schema(TrainedRecord)
SCHEMA = GROUP_SCHEMA | ROLLOUT_SCHEMA
TEXT_SCHEMA = GROUP_SCHEMA | GROUP_TEXT_SCHEMA | ROLLOUT_SCHEMA | ROLLOUT_TEXT_SCHEMA

GROUP_INDEX = "group_index"
"""A number for each group of a frame, for who does not need the group's id."""

REPLACED_BY = ("phase", "step", "attempt")
"""The columns that say which attempt at what a row comes from."""

_OF_GROUP = GROUP_SCHEMA | GROUP_TEXT_SCHEMA
_OF_ROLLOUT = ROLLOUT_SCHEMA | ROLLOUT_TEXT_SCHEMA
_COLUMNS = {n: c for record in (LedgerRecord, GroupRecord, RolloutRecord) for n, c in layout_of(record).columns.items()}


LineByLine = Callable[[Part], Iterable[Record]]
"""The records of a part, for when polars cannot read it; deals with damaged lines."""


class _UnsoundError(Exception):
    """Something in a chunk that only the codec can read."""


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
        return _tidy(_ours(b"".join(part.data for part in parts), kind, columns), columns)
    except (_UnsoundError, pl.exceptions.PolarsError):
        return concat_groups(_tidy(_read_part(part, columns, line_by_line), columns) for part in parts)


def read_groups(parts: Sequence[Part], line_by_line: LineByLine) -> pl.DataFrame:
    """The groups of a bundle of files with texts, in order: a row each, of the shape of a line of the ledger.

    Args:
        parts: of one run and kind, see `chunks.bundles`. Where polars can read one, each of its lines is a group.
        line_by_line: called for the parts that polars cannot read; then each of its records is a group.

    Returns:
        `GROUP_SCHEMA`, and `ROLLOUT_SCHEMA` as lists.
    """
    kind = parts[0].file.kind
    with suppress(_UnsoundError, pl.exceptions.PolarsError):
        return _in_groups(_ours(b"".join(part.data for part in parts), kind, SCHEMA), parts)
    return pl.concat([_read_groups_of(part, line_by_line) for part in parts])


def concat_groups(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Frames one below the other, at least one, with `GROUP_INDEX` counted on."""
    return pl.concat(list(count_on(frames)))


def count_on(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """The frames, with `GROUP_INDEX` unique over all of them."""
    start = 0
    for frame in frames:
        yield frame.with_columns(pl.col(GROUP_INDEX) + start)
        start += 1 + (frame.select(pl.col(GROUP_INDEX).max()).item() or 0)


def replaced(frames: Iterable[pl.DataFrame]) -> frozenset[tuple[str, int | None, int]]:
    """The `REPLACED_BY` of rows that a later attempt has taken back: from the first step that it trained again on, even
    where it did not get as far. What belongs to no step replaces nothing, and is not replaced.
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
    """The rows whose `REPLACED_BY` are none of these."""
    schema = {name: SCHEMA[name] for name in REPLACED_BY}
    old = pl.DataFrame(list(replaced), schema=schema, orient="row")
    return frame.join(old, on=REPLACED_BY, how="anti", maintain_order="left")


def trained_frame(records: Iterable[TrainedRecord]) -> pl.DataFrame:
    """One row per record."""
    return pl.DataFrame(list(records), schema=TRAINED_SCHEMA)


def _read_part(part: Part, columns: Collection[str], line_by_line: LineByLine) -> pl.DataFrame:
    with suppress(_UnsoundError, pl.exceptions.PolarsError):
        return _ours(part.data, part.file.kind, columns)
    groups, kind = _by_codec(part, {"base_score", *columns}, line_by_line)
    return _explode(groups, kind)


def _read_groups_of(part: Part, line_by_line: LineByLine) -> pl.DataFrame:
    with suppress(_UnsoundError, pl.exceptions.PolarsError):
        return _in_groups(_ours(part.data, part.file.kind, SCHEMA), [part])
    groups, _ = _by_codec(part, SCHEMA, line_by_line)
    return groups.select(
        *(_none_for_empty(name, pl.col(name)) for name in GROUP_SCHEMA),
        *(pl.col(name).list.eval(_none_for_empty(name, pl.element())) for name in ROLLOUT_SCHEMA),
    )


def _by_codec(part: Part, columns: Collection[str], line_by_line: LineByLine) -> tuple[pl.DataFrame, FileKind]:
    """The groups of lines that the codec reads, and the kind of line that they were written as for polars: without
    texts, which cost most, unless a column needs them.
    """
    kind, records = part.file.kind, line_by_line(part)
    if SCHEMA.keys() >= set(columns):
        records = (LedgerRecord.of(one, kind, None) if isinstance(one, GroupRecord) else one for one in records)
        as_kind = FileKind.LEDGER
    else:
        as_kind = kind
    return _parse(b"".join(map(to_line, records)), as_kind, columns, strict=False), as_kind


def _in_groups(rollouts: pl.DataFrame, parts: Sequence[Part]) -> pl.DataFrame:
    """Rollouts put together again, where every line has some."""
    of_group = [pl.col(name).first() for name in GROUP_SCHEMA]
    by_group = _tidy(rollouts, SCHEMA).group_by(GROUP_INDEX, maintain_order=True)
    groups = by_group.agg(*of_group, *ROLLOUT_SCHEMA).drop(GROUP_INDEX)
    if groups.height != sum(1 for part in parts for _ in part.numbered()):
        raise _UnsoundError
    return groups


def _ours(data: bytes, kind: FileKind, columns: Collection[str]) -> pl.DataFrame:
    """The rollouts of lines that are all in our format and all whole.

    Raises:
        _UnsoundError: they are not.
    """
    groups = _parse(data, kind, {"schema_version", "base_score", "status", *columns})
    _check(groups, [pl.col("schema_version").is_between(1, SCHEMA_VERSION).all()])
    rollouts = _explode(groups, kind)
    allowed = {name: values for name in rollouts.columns if name in _COLUMNS and (values := _COLUMNS[name].allowed)}
    _check(rollouts, [pl.col(name).is_in(values).all() for name, values in allowed.items()])
    return rollouts


def _check(frame: pl.DataFrame, conditions: Sequence[pl.Expr]) -> None:
    """Raise unless all conditions hold and no value is null that must not be."""
    filled = [name for name in frame.columns if name not in _COLUMNS or not _COLUMNS[name].may_be_null]
    if not frame.select(pl.all_horizontal(*conditions, *(pl.col(name).is_not_null().all() for name in filled))).item():
        raise _UnsoundError


def _parse(data: bytes, kind: FileKind, columns: Collection[str], *, strict: bool = True) -> pl.DataFrame:
    """One row per line, with lists for the rollouts; null where a line has no such key or, unless `strict`, something
    else than the column holds, as foreign files may.
    """
    of_rollout = {name: dtype for name, dtype in _OF_ROLLOUT.items() if name in columns}
    schema: dict[str, pl.DataType] = {name: dtype for name, dtype in _OF_GROUP.items() if name in columns}
    if kind.holds_text:
        schema = {name: dtype for name, dtype in schema.items() if name not in ("text", "text_reason")}
        schema["rollouts"] = pl.List(pl.Struct(of_rollout))
    else:
        schema |= {name: pl.List(dtype) for name, dtype in of_rollout.items()}
    if not data.strip():
        return pl.DataFrame(schema=schema)
    return pl.scan_ndjson(io.BytesIO(data), schema=schema, ignore_errors=not strict).collect(engine="streaming")


def _explode(groups: pl.DataFrame, kind: FileKind) -> pl.DataFrame:
    """One row per rollout, with `GROUP_INDEX`."""
    groups = groups.with_row_index(GROUP_INDEX).with_columns(pl.col(GROUP_INDEX).cast(pl.Int64))
    if kind.holds_text:
        groups = groups.with_columns(text=pl.lit(str(kind)), text_reason=pl.lit(""))
        return groups.filter(pl.col("rollouts").list.len() > 0).explode("rollouts").unnest("rollouts")
    lists = [name for name, dtype in groups.schema.items() if isinstance(dtype, pl.List)]
    return groups.filter(pl.col(lists[0]).list.len() > 0).explode(lists)


def _tidy(rollouts: pl.DataFrame, columns: Collection[str]) -> pl.DataFrame:
    """The columns that were asked for; empty strings that stand for "none" become null."""
    types = pl.Schema({name: TEXT_SCHEMA[name] for name in columns})
    values = [_none_for_empty(name, pl.col(name)) for name in columns]
    return rollouts.select(GROUP_INDEX, *columns).cast(types).with_columns(values)


def _none_for_empty(name: str, value: pl.Expr) -> pl.Expr:
    return value.replace("", None) if name in _COLUMNS and _COLUMNS[name].empty_means_none else value
