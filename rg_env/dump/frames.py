"""Records as polars frames with one row per rollout, for statistics.

A frame is made of the records of lines, so it has the rows and the values that a loop over the records has: "" for a
text that is absent, null for a number. The columns are derived from the fields of `rg_env.dump.schema`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import polars as pl
from polars.io.plugins import register_io_source

from rg_env.dump.column_types import polars_schema
from rg_env.dump.files import Line
from rg_env.dump.schema import (
    GroupRecord,
    LedgerRecord,
    Phase,
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

GROUP = "group"
"""Column of rollouts with the number of their group."""

SCHEMA = GROUP_SCHEMA | ROLLOUT_SCHEMA
TEXT_SCHEMA = GROUP_SCHEMA | GROUP_TEXT_SCHEMA | ROLLOUT_SCHEMA | ROLLOUT_TEXT_SCHEMA


class Batch(NamedTuple):
    """Some groups: a row for each, and a row for each of their rollouts, whose column `GROUP` has the group's row."""

    groups: pl.DataFrame
    rollouts: pl.DataFrame

    def rows(self, columns: Collection[str]) -> pl.DataFrame:
        """Return a row for each rollout, with these columns of both frames."""
        of_groups = [name for name in columns if name in self.groups.columns]
        places = self.rollouts[GROUP]
        rows = self.rollouts.with_columns(self.groups[name].gather(places) for name in of_groups)
        return rows.select(columns)


def batch_of(lines: Sequence[Line], columns: Collection[str]) -> Batch:
    """Return the groups and rollouts of the records in lines of one kind of file, in order, with columns of
    `TEXT_SCHEMA`."""
    records: list[Any] = [line.record for line in lines]
    with_text = bool(lines) and lines[0].file.kind.holds_text
    # Files with texts have a list of rollouts, the ledger's lines a list of values for each column.
    rollouts: list[Any] = []
    if with_text:
        rollouts = list(chain.from_iterable(record.rollouts for record in records))
        sizes = [len(record.rollouts) for record in records]
    else:
        sizes = [len(record.repetition) for record in records]

    def of_groups(name: str) -> list[Any]:
        # Only the ledger's lines say where the text is; of a file with texts, it is the file itself.
        if with_text and name == "text":
            return [line.file.kind.value for line in lines]
        if with_text and name == "text_reason":
            return [""] * len(lines)
        return [getattr(record, name) for record in records]

    def of_rollouts(name: str) -> list[Any]:
        if with_text:
            return [getattr(rollout, name) for rollout in rollouts]
        try:
            return list(chain.from_iterable([getattr(record, name) for record in records]))
        except TypeError:  # a line lacks the key
            return list(chain.from_iterable(record.column(name) for record in records))

    of_group, of_rollout = [], []
    for name in columns:
        if name in GROUP_SCHEMA or name in GROUP_TEXT_SCHEMA:
            of_group.append(pl.Series(name, of_groups(name), TEXT_SCHEMA[name]))
        else:
            of_rollout.append(pl.Series(name, of_rollouts(name), TEXT_SCHEMA[name]))
    numbers = pl.Series(sizes, dtype=pl.UInt32)
    rows = pl.int_range(len(lines), dtype=pl.UInt32, eager=True).repeat_by(numbers).explode(empty_as_null=False)
    return Batch(_without_nan(of_group), _without_nan([rows.alias(GROUP), *of_rollout]))


def _without_nan(columns: list[pl.Series]) -> pl.DataFrame:
    """Return a frame with null where a record has NaN for an unknown number, so that a mean leaves it out."""
    return pl.DataFrame(columns).with_columns(pl.col(pl.Float64).fill_nan(None))


def rollouts_frame(lines: Sequence[Line], columns: Collection[str]) -> pl.DataFrame:
    """Return a row for each rollout of the records in lines of one kind of file, in order, with columns of
    `TEXT_SCHEMA`."""
    return batch_of(lines, columns).rows(columns)


UNIT = ("attempt", "phase", "step", "call")
"""The columns of groups that `is_replaced` needs."""


def is_replaced(groups: pl.DataFrame) -> pl.Expr:
    """Return whether a later attempt replaced a group, as `Contents` decides it, for all groups of one run."""
    attempt, step = pl.col("attempt"), pl.col("step")
    trained = groups.filter(pl.col("phase") == Phase.TRAIN.value).drop_nulls("step")
    again = [pl.lit(False)]
    for later, first in trained.group_by("attempt").agg(step.min()).iter_rows():
        again.append((attempt < later) & (step >= first))
    # Where there are no steps, a call is tried again as a whole.
    call = pl.when(step.is_null()).then("call").otherwise(0)
    last = attempt.max().over("phase", "step", call)
    return pl.any_horizontal(*again).fill_null(False) | (attempt < last)


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
