"""Records as polars frames with one row per rollout, for statistics.

A frame is made of the records of lines, so it has the rows and the values that a loop over the records has: "" for a
text that is absent, null for a number. The columns are derived from the fields of `rg_env.dump.schema`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import polars as pl
from polars.io.plugins import register_io_source

from rg_env.dump.column_types import polars_schema
from rg_env.dump.files import Line
from rg_env.dump.ledger_parts import REST, SCORES, parts_of
from rg_env.dump.schema import (
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
    """Some groups: a row for each, and a row for each of their rollouts, whose column `GROUP` has the group's row;
    `size`: the bytes of their lines, where that was noted."""

    groups: pl.DataFrame
    rollouts: pl.DataFrame
    size: int = 0

    def rows(self, columns: Collection[str]) -> pl.DataFrame:
        """Return a row for each rollout, with these columns of both frames."""
        of_groups = [name for name in columns if name in self.groups.columns and name != GROUP]
        places = self.rollouts[GROUP]
        rows = self.rollouts.with_columns(self.groups[name].gather(places) for name in of_groups)
        return rows.select(columns)


_HELD_LINES = 64
"""Lines whose records' values are held as they are: so few that they are still in the processor's caches."""


class Columns:
    """Takes columns of `TEXT_SCHEMA` from the records in lines of one kind of file. Of a line only these values are
    kept, so that a record is made where the last one was.

    Args:
        types: of columns of words, which are texts otherwise: of few words, these are much smaller.
    """

    def __init__(self, names: Collection[str], types: Mapping[str, pl.DataType] | None = None) -> None:
        self._types = dict(TEXT_SCHEMA) | dict(types or {})
        self._of_groups = [name for name in names if name in GROUP_SCHEMA or name in GROUP_TEXT_SCHEMA]
        self._of_rollouts = [name for name in names if name not in self._of_groups]
        self._in_texts = [name for name in self._of_groups if name not in _ABOUT_TEXT]
        self._about_text = [name for name in self._of_groups if name in _ABOUT_TEXT]
        self._from_ledger = _getter(self._of_groups)
        self._from_text, self._from_rollout = _getter([*self._in_texts, "rollouts"]), _getter(self._of_rollouts)
        self._of_parts = [
            [name for name in self._of_rollouts if name in SCORES],
            [name for name in self._of_rollouts if name in REST],
        ]
        self.kind = FileKind.LEDGER
        """Of the file whose line was taken last."""
        self._held: list[tuple[Any, ...]] = []
        self._source: dict[str, Any] = {}
        self._clear()

    def _clear(self) -> None:
        self._sizes: list[int] = []
        # What is known of all lines from one on, with its number.
        self._sources: list[tuple[int, dict[str, Any]]] = [(0, self._source)]
        self._values: dict[str, list[Any]] = {name: [] for name in (*self._of_groups, *self._of_rollouts)}
        self._lists = [_Lists(names) for names in self._of_parts]
        self._lengths: list[int | None] = []

    def __len__(self) -> int:
        """Number of lines that `batch` will return."""
        return len(self._sizes) + len(self._held)

    def enter(self, **source: Any) -> None:
        """Give what is known of all lines from now on, which becomes columns of groups."""
        self._source = source
        self._sources.append((len(self), source))

    def take(self, line: Line) -> None:
        self.kind = line.file.kind
        if self.kind.holds_text:
            *values, rollouts = self._from_text(line.record)
            for name in self._about_text:
                values.append(_ABOUT_TEXT[name](line))
            self._held.append((*values, list(map(self._from_rollout, rollouts))))
        else:
            self._held.append((*self._from_ledger(line.record), line.parts or parts_of(line.record)))
        if len(self._held) == _HELD_LINES:
            self._unpack()

    def batch(self) -> Batch:
        """Return what was taken since the last call."""
        self._unpack()
        groups = [self._series(name) for name in self._of_groups]
        ends = [start for start, _ in self._sources[1:]] + [len(self._sizes)]
        for name in self._source:
            of_source: list[Any] = []
            for (start, source), end in zip(self._sources, ends, strict=True):
                of_source += [source.get(name)] * (end - start)
            groups.append(pl.Series(name, of_source, pl.DataType.from_python(type(self._source[name]))))
        number = pl.int_range(len(self._sizes), dtype=pl.UInt32).repeat_by(pl.Series(self._sizes, dtype=pl.UInt32))
        rollouts = [pl.select(number.explode().alias(GROUP)).to_series().drop_nulls()]
        for name in self._of_rollouts:
            if self.kind.holds_text:
                rollouts.append(self._series(name))
            elif name == "response_tokens":
                rollouts.append(pl.Series(name, self._lengths, TEXT_SCHEMA[name]))
        if not self.kind.holds_text:
            for lists in self._lists:
                rollouts += lists.columns(self._types)
        self._clear()
        return Batch(_without_nan(groups), _without_nan(rollouts))

    def _series(self, name: str) -> pl.Series:
        return pl.Series(name, self._values[name], TEXT_SCHEMA[name]).cast(self._types[name])

    def _unpack(self) -> None:
        """Put what is held into columns."""
        held, self._held = self._held, []
        if not held:
            return
        *columns, last = zip(*held, strict=True)
        of_groups = self._of_groups
        if self.kind.holds_text:
            of_groups = [*self._in_texts, *self._about_text]
            self._sizes += map(len, last)
            every = list(chain.from_iterable(last))
            for number, name in enumerate(self._of_rollouts):
                self._values[name] += [values[number] for values in every]
        else:
            scores, lengths, rest = zip(*last, strict=True)
            self._sizes += map(len, lengths)
            self._lengths += chain.from_iterable(lengths)
            for lists, parts in zip(self._lists, (scores, rest), strict=True):
                lists.add(parts)
        for name, values in zip(of_groups, columns, strict=True):
            self._values[name] += values


class _Lists:
    """Columns of rollouts in the ledger: the different lists, and the number of those of each group."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._numbers: dict[Any, int] = {}
        self._of_groups: list[int] = []

    def add(self, parts: Iterable[Any]) -> None:
        """Add those of some groups; what is the same object is held once."""
        numbers = self._numbers
        self._of_groups += [numbers.setdefault(part, len(numbers)) for part in parts]

    def columns(self, types: Mapping[str, pl.DataType]) -> list[pl.Series]:
        """Return a value for each rollout of all groups, in order."""
        if not self._names:
            return []
        sizes = pl.Series(list(map(len, map(attrgetter(self._names[0]), self._numbers))), dtype=pl.UInt32)
        ends = sizes.cum_sum().gather(self._of_groups)
        starts = ends - sizes.gather(self._of_groups)
        rows = pl.select(pl.int_ranges(starts, ends, dtype=pl.UInt32).explode()).to_series().drop_nulls()
        columns = []
        for name in self._names:
            values = list(chain.from_iterable(map(attrgetter(name), self._numbers)))
            columns.append(pl.Series(name, values, ROLLOUT_SCHEMA[name]).cast(types[name]).gather(rows))
        return columns


_ABOUT_TEXT: dict[str, Callable[[Line], Any]] = {
    "text": attrgetter("file.kind.value"),
    "text_reason": lambda line: "",
    "text_file": attrgetter("file.batch"),
    "text_at": attrgetter("offset"),
}
"""What only the ledger says of where a text is: of a file with texts, it is the line itself."""


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


RUN, RECOVERED = "run_number", "recovered"
UNIT = ("attempt", "phase", "step", "call", RUN, RECOVERED)
"""The columns of groups that `in_order` needs. The last two are in every batch that `Dump.read_batches` makes: the
number of the run, and whether the line was made from a text."""


def in_order(groups: pl.DataFrame, runs: Collection[int]) -> pl.DataFrame:
    """Return the groups in the order of `Dump.scan`, without those that a later attempt replaced.

    Args:
        groups: all of a dump.
        runs: the numbers of those that have several attempts, of which the last counts.
    """
    if runs:
        groups = groups.filter(~(pl.col(RUN).is_in(list(runs)) & _is_replaced(groups)))
    if groups[RECOVERED].any():
        groups = groups.sort(RUN, ~pl.col(RECOVERED), maintain_order=True)
    return groups


def _is_replaced(groups: pl.DataFrame) -> pl.Expr:
    """Return whether a later attempt replaced a group, as `Contents` decides it."""
    attempt, step = pl.col("attempt"), pl.col("step")
    trained = groups.filter(pl.col("phase") == Phase.TRAIN.value).drop_nulls("step")
    again = [pl.lit(False)]
    for run, later, first in trained.group_by(RUN, "attempt").agg(step.min()).iter_rows():
        if later > 1:
            again.append((pl.col(RUN) == run) & (attempt < later) & (step >= first))
    # Where there are no steps, a call is tried again as a whole.
    call = pl.when(step.is_null()).then("call").otherwise(0)
    last = attempt.max().over(RUN, "phase", "step", call)
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
