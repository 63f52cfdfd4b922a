"""Records as polars frames with one row per rollout, for statistics.

A frame is made of the records of lines, so it has the rows and the values that a loop over the records has: "" for a
text that is absent, null for a number. The columns are derived from the fields of `rg_env.dump.schema`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from rg_env.dump.column_types import polars_schema
from rg_env.dump.files import Line
from rg_env.dump.schema import (
    GroupRecord,
    LedgerRecord,
    RolloutFacts,
    RolloutRecord,
)

ROLLOUT_SCHEMA = polars_schema(RolloutFacts)
"""Columns that hold one value for a rollout: lists in the ledger's lines, plain in every frame."""

GROUP_SCHEMA = {name: dtype for name, dtype in polars_schema(LedgerRecord).items() if name not in ROLLOUT_SCHEMA}
"""Columns that hold one value for a group."""

GROUP_TEXT_SCHEMA = {name: dtype for name, dtype in polars_schema(GroupRecord).items() if name not in GROUP_SCHEMA}
del GROUP_TEXT_SCHEMA["rollouts"]  # which become rows
ROLLOUT_TEXT_SCHEMA = {
    name: dtype for name, dtype in polars_schema(RolloutRecord).items() if name not in ROLLOUT_SCHEMA
}
"""With `GROUP_TEXT_SCHEMA`: columns that only files with texts have."""

SCHEMA = GROUP_SCHEMA | ROLLOUT_SCHEMA
TEXT_SCHEMA = GROUP_SCHEMA | GROUP_TEXT_SCHEMA | ROLLOUT_SCHEMA | ROLLOUT_TEXT_SCHEMA


def rollouts_frame(lines: Sequence[Line], columns: Collection[str]) -> pl.DataFrame:
    """Return a row for each rollout of the records in lines of one kind of file, in order, with columns of
    `TEXT_SCHEMA`."""
    records: list[Any] = [line.record for line in lines]
    with_text = bool(lines) and lines[0].file.kind.holds_text
    # Files with texts have a list of rollouts, the ledger's lines a list of values for each column.
    if with_text:
        rollouts = [rollout for record in records for rollout in record.rollouts]
        sizes = [len(record.rollouts) for record in records]
    else:
        rollouts = []
        sizes = [len(record.repetition) for record in records]
    # The number of the record of each row: values of a group are repeated for each of its rollouts.
    rows = pl.Series([row for row, size in enumerate(sizes) for _ in range(size)], dtype=pl.UInt32)

    def of_groups(name: str) -> list[Any]:
        # Only the ledger's lines say where the text is; of a file with texts, it is the file itself.
        if with_text and name == "text":
            return [line.file.kind.value for line in lines]
        if with_text and name == "text_reason":
            return [""] * len(lines)
        return [getattr(record, name) for record in records]

    def values(name: str) -> pl.Series:
        if name in GROUP_SCHEMA or name in GROUP_TEXT_SCHEMA:
            return pl.Series(name, of_groups(name), TEXT_SCHEMA[name]).gather(rows)
        if with_text:
            return pl.Series(name, [getattr(rollout, name) for rollout in rollouts], TEXT_SCHEMA[name])
        return pl.Series(name, list(chain.from_iterable(record.column(name) for record in records)), SCHEMA[name])

    # Unknown numbers are NaN in records and null in frames, so that a mean leaves them out.
    floats = [name for name in columns if TEXT_SCHEMA[name] == pl.Float64()]
    return pl.DataFrame([values(name) for name in columns]).with_columns(pl.col(floats).fill_nan(None))


def all_of(tests: Sequence[pl.Expr]) -> pl.Expr:
    """Return whether a row passes all tests."""
    return pl.all_horizontal(*tests)


def scan_frames(
    schema: Mapping[str, pl.DataType], frames: Callable[[list[str]], Iterable[pl.DataFrame]]
) -> pl.LazyFrame:
    """Return a LazyFrame that calls `frames` with the names of the columns that a query needs, when it is collected."""

    def read(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        shown = list(schema) if with_columns is None else with_columns
        # The predicate may test columns that the query does not show.
        tested = [] if predicate is None else predicate.meta.root_names()
        needed = {*shown, *tested}
        left = n_rows
        for frame in frames([name for name in schema if name in needed]):
            # The limit counts rows before the predicate.
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame.select(shown)
            if left == 0:
                return

    return register_io_source(read, schema=pl.Schema(schema))
