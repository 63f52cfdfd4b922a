"""Records as polars frames with one row per rollout, for statistics.

A frame is made of the records of lines, so it has the rows and the values that a loop over the records has: "" for a
text that is absent, null for a number. The columns are derived from the fields of `rg_env.dump.schema`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
import polars as pl
from polars.io.plugins import register_io_source

from rg_env.dump.codec import Column, columns_of
from rg_env.dump.read.lines import Line
from rg_env.dump.schema import (
    MESSAGE_KEYS,
    GroupRecord,
    LedgerRecord,
    Record,
    RolloutFacts,
    RolloutRecord,
)


def _type(column: Column) -> pl.DataType:
    value = {bool: pl.Boolean(), int: pl.Int64(), float: pl.Float64()}.get(column.type, pl.String())
    return pl.List(value) if column.is_list else value


def schema_of(record: Any) -> dict[str, pl.DataType]:
    """The columns of a record's class, and the type of each."""
    return {name: _type(column) for name, column in columns_of(record).items()}


GROUP_SCHEMA = schema_of(LedgerRecord)
"""Columns that hold one value for a group."""

ROLLOUT_SCHEMA = schema_of(RolloutFacts)
"""Columns that hold one value for a rollout: lists in the ledger's lines, plain in every frame."""

GROUP_TEXT_SCHEMA = {name: dtype for name, dtype in schema_of(GroupRecord).items() if name not in GROUP_SCHEMA}
ROLLOUT_TEXT_SCHEMA = {
    **{name: dtype for name, dtype in schema_of(RolloutRecord).items() if name not in ROLLOUT_SCHEMA},
    "conversation": pl.List(pl.Struct(dict.fromkeys(MESSAGE_KEYS, pl.String()))),
}
"""With `GROUP_TEXT_SCHEMA`: columns that only files with texts have."""

SCHEMA = GROUP_SCHEMA | ROLLOUT_SCHEMA
TEXT_SCHEMA = GROUP_SCHEMA | GROUP_TEXT_SCHEMA | ROLLOUT_SCHEMA | ROLLOUT_TEXT_SCHEMA

_OF_ROLLOUT = {*ROLLOUT_SCHEMA, *ROLLOUT_TEXT_SCHEMA}
_OF_TEXT_FILE: dict[str, Callable[[Line], object]] = {
    "text": lambda line: line.file.kind.value,
    "text_reason": lambda line: "",
}
"""What only the ledger's lines have: which file has the text of a group."""


def rollouts_frame(lines: Sequence[Line], columns: Collection[str]) -> pl.DataFrame:
    """A row for each rollout of the records in lines of one kind of file, in order. A group without rollouts has none.

    Args:
        columns: which of `SCHEMA`, or for files with texts of `TEXT_SCHEMA`.
    """
    records: list[Any] = [line.record for line in lines]
    with_text = bool(lines) and lines[0].file.kind.holds_text
    rollouts = [rollout for record in records for rollout in record.rollouts] if with_text else []
    sizes = [len(record.rollouts) if with_text else len(record.repetition) for record in records]
    rows = pl.Series([row for row, size in enumerate(sizes) for _ in range(size)], dtype=pl.UInt32)

    def values(name: str) -> pl.Series:
        found: list[Any]
        if name not in _OF_ROLLOUT:
            of_file = _OF_TEXT_FILE.get(name) if with_text else None
            found = [of_file(line) for line in lines] if of_file else [getattr(record, name) for record in records]
            return pl.Series(name, found, TEXT_SCHEMA[name]).gather(rows)
        if with_text:
            found = [getattr(rollout, name) for rollout in rollouts]
        else:
            found = list(chain.from_iterable(getattr(record, name) for record in records))
        return pl.Series(name, found, TEXT_SCHEMA[name])

    floats = [name for name in columns if TEXT_SCHEMA[name] == pl.Float64()]
    return pl.DataFrame([values(name) for name in columns]).with_columns(pl.col(floats).fill_nan(None))


def records_frame[R: Record](kind: type[R], records: Iterable[R]) -> pl.DataFrame:
    """A row for each record of a class, such as `TrainedRecord`."""
    return pl.DataFrame([msgspec.structs.asdict(record) for record in records], schema=schema_of(kind), orient="row")


def scan_frames(
    schema: Mapping[str, pl.DataType], frames: Callable[[list[str]], Iterable[pl.DataFrame]]
) -> pl.LazyFrame:
    """A LazyFrame of these columns. Collecting it gives the rows of the frames, and reads only what the query needs.

    Args:
        frames: reads the named columns; called when the query is collected.
    """

    def read(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        shown = list(schema) if with_columns is None else with_columns
        tested = [] if predicate is None else predicate.meta.root_names()
        left = n_rows
        for frame in frames([name for name in schema if name in {*shown, *tested}]):
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame.select(shown)
            if left == 0:
                return

    return register_io_source(read, schema=pl.Schema(schema))
