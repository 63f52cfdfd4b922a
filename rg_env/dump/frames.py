"""Records as polars frames with one row per rollout, for statistics.

A frame is made of the records of lines, so it has the rows and the values that a loop over the records has: "" for a
text that is absent, null for a number. The columns are derived from the fields of `rg_env.dump.schema`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import polars as pl
from polars.io.plugins import register_io_source

from rg_env.dump.column_types import polars_schema
from rg_env.dump.files import Line
from rg_env.dump.schema import (
    DEFAULTS,
    FileKind,
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


class Columns:
    """Takes columns of `TEXT_SCHEMA` from the records in lines of one kind of file. Of a line only these values are kept,
    so that records need no memory and are made where the last one was."""

    def __init__(self, names: Collection[str]) -> None:
        self._of_groups = [name for name in names if name in GROUP_SCHEMA or name in GROUP_TEXT_SCHEMA]
        self._of_rollouts = [name for name in names if name not in self._of_groups]
        # Of a file with texts, the ledger's columns about the text are known without it.
        in_texts = [name for name in self._of_groups if name not in _ABOUT_TEXT]
        self._from_ledger = _getter([*self._of_groups, *self._of_rollouts, "repetition"])
        self._from_text, self._from_rollout = _getter([*in_texts, "rollouts"]), _getter(self._of_rollouts)
        self._texts = [name for name in self._of_groups if name in _ABOUT_TEXT]
        self._in_texts = in_texts
        self._held: list[tuple[Any, ...]] = []
        self._kind = FileKind.LEDGER

    def __len__(self) -> int:
        return len(self._held)

    def take(self, line: Line) -> None:
        self._kind = line.file.kind
        if self._kind.holds_text:
            *values, rollouts = self._from_text(line.record)
            self._held.append((*values, list(map(self._from_rollout, rollouts))))
        else:
            self._held.append(self._from_ledger(line.record))

    def batch(self) -> Batch:
        """Return what was taken since the last call."""
        held, self._held = self._held, []
        if self._kind.holds_text:
            columns, sizes = self._of_texts(held)
        else:
            columns, sizes = self._of_ledger(held)
        series = {name: pl.Series(name, values, TEXT_SCHEMA[name]) for name, values in columns.items()}
        numbers = pl.Series(sizes, dtype=pl.UInt32)
        rows = pl.int_range(len(sizes), dtype=pl.UInt32, eager=True).repeat_by(numbers)
        series[GROUP] = rows.explode(empty_as_null=False).alias(GROUP)
        groups = [series[name] for name in self._of_groups]
        return Batch(_without_nan(groups), _without_nan([series[name] for name in (GROUP, *self._of_rollouts)]))

    def _of_ledger(self, held: list[tuple[Any, ...]]) -> tuple[dict[str, Sequence[Any]], list[int]]:
        *columns, repetitions = zip(*held, strict=True)
        values: dict[str, Sequence[Any]] = dict(zip((*self._of_groups, *self._of_rollouts), columns, strict=True))
        sizes = list(map(len, repetitions))
        for name in self._of_rollouts:
            lists = values[name]
            try:
                values[name] = list(chain.from_iterable(lists))
            except TypeError:  # a line lacks the key
                defaults = [[DEFAULTS.get(name)] * size for size in sizes]
                chosen = [b if a is msgspec.UNSET else a for a, b in zip(lists, defaults, strict=True)]
                values[name] = list(chain.from_iterable(chosen))
        return values, sizes

    def _of_texts(self, held: list[tuple[Any, ...]]) -> tuple[dict[str, Sequence[Any]], list[int]]:
        *columns, rollouts = zip(*held, strict=True)
        values: dict[str, Sequence[Any]] = dict(zip(self._in_texts, columns, strict=True))
        about_text = {"text": self._kind.value, "text_reason": ""}
        for name in self._texts:
            values[name] = [about_text[name]] * len(held)
        every = list(chain.from_iterable(rollouts))
        for number, name in enumerate(self._of_rollouts):
            values[name] = [rollout[number] for rollout in every]
        return values, list(map(len, rollouts))


_ABOUT_TEXT = ("text", "text_reason")


def _getter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that gives the values of these attributes, always as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _without_nan(columns: list[pl.Series]) -> pl.DataFrame:
    """Return a frame with null where a record has NaN for an unknown number, so that a mean leaves it out."""
    return pl.DataFrame(columns).with_columns(pl.col(pl.Float64).fill_nan(None))


def rollouts_frame(lines: Sequence[Line], columns: Collection[str]) -> pl.DataFrame:
    """Return a row for each rollout of the records in lines of one kind of file, in order, with columns of
    `TEXT_SCHEMA`."""
    taken = Columns(columns)
    for line in lines:
        taken.take(line)
    return taken.batch().rows(columns)


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
