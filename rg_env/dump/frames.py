"""Records as polars frames with one row per rollout, for statistics, and conditions on the rows.

A frame is made of the records of lines, so it has the rows and the values that a loop over the records has: "" for a
text that is absent, null for a number. The columns are derived from the fields of `rg_env.dump.schema`.

A condition is SQL as polars reads it: `phase = 'train' AND step BETWEEN 10 AND 20`. It means the same in every command,
and for one row whatever the others are. One that no record can satisfy (an unknown column, a wrong type, an unknown
word of a column with a fixed set) is an error that says what there is; words are checked with `=`, `<>` and `IN`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import polars as pl
from msgspec import inspect
from polars.io.plugins import register_io_source

from rg_env.dump.files import Line
from rg_env.dump.schema import (
    MESSAGE_KEYS,
    FileKind,
    GroupRecord,
    LedgerRecord,
    NotKept,
    Outcome,
    Phase,
    RolloutFacts,
    RolloutRecord,
)
from rg_env.errors import RGEnvError, did_you_mean
from rg_env.scoring.types import Status, Violation
from rg_env.wording import visible

_TYPES: dict[type[inspect.Type], pl.DataType] = {
    inspect.BoolType: pl.Boolean(),
    inspect.IntType: pl.Int64(),
    inspect.FloatType: pl.Float64(),
    inspect.StrType: pl.String(),
    inspect.EnumType: pl.String(),
}


def schema_of(record: Any) -> dict[str, pl.DataType]:
    """Return the columns of a record's class, without conversations and nested rollouts, and the type of each."""
    described = inspect.type_info(record)
    assert isinstance(described, inspect.StructType)
    schema = {}
    for field in described.fields:
        dtype = _type(field.type)
        if dtype is not None:
            schema[field.name] = dtype
    return schema


def _type(kind: inspect.Type) -> pl.DataType | None:
    """Return the type of a column for a field; None where frames have no column for it, as for nested rollouts."""
    if isinstance(kind, inspect.ListType):
        item = _type(kind.item_type)
        if item is None:
            return None
        return pl.List(item)
    options = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    if any(isinstance(option, inspect.ListType) for option in options):
        return None
    # Fails for a field of two types, neither of which is None: no column could hold both.
    (plain,) = [option for option in options if not isinstance(option, inspect.NoneType)]
    if isinstance(plain, inspect.Metadata):  # an annotated type, as `Json`
        plain = plain.type
    return _TYPES.get(type(plain))


ROLLOUT_SCHEMA = schema_of(RolloutFacts)
"""Columns that hold one value for a rollout: lists in the ledger's lines, plain in every frame."""

GROUP_SCHEMA = {name: dtype for name, dtype in schema_of(LedgerRecord).items() if name not in ROLLOUT_SCHEMA}
"""Columns that hold one value for a group."""

GROUP_TEXT_SCHEMA = {name: dtype for name, dtype in schema_of(GroupRecord).items() if name not in GROUP_SCHEMA}
_CONVERSATION = pl.List(pl.Struct(dict.fromkeys(MESSAGE_KEYS, pl.String())))
ROLLOUT_TEXT_SCHEMA = {name: dtype for name, dtype in schema_of(RolloutRecord).items() if name not in ROLLOUT_SCHEMA}
ROLLOUT_TEXT_SCHEMA["conversation"] = _CONVERSATION
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


# -- conditions

WORDS: dict[str, list[str]] = {
    "phase": list(Phase),
    "outcome": list(Outcome),
    "violation": ["", *Violation],
    "status": list(Status),
    "text": ["", *(kind for kind in FileKind if kind.holds_text)],
    "text_reason": ["", *NotKept],
    **{name: [] for name, dtype in SCHEMA.items() if dtype == pl.Boolean()},
}
"""The words that a column can have; none if it is true or false."""
_FUNCTIONS = ("abs", "coalesce", "ends_with", "length", "lower", "round", "starts_with", "upper")
_KEYWORDS = ("and", "between", "case", "else", "in", "like", "not", "or", "then", "when")
_OTHER_OPERATORS = {"&&": "AND", "||": "OR"}
"""Operators of other languages, and what SQL has in their place."""
_COLUMNS = (
    "some columns are task, step, phase, outcome, base_score, violation, status and response_tokens; docs/dumps.md "
    "lists all"
)
_STRING = r"'(?:[^']|'')*'"
_CALL = re.compile(r"\b(\w+)\s*\(", re.ASCII)


class ConditionError(RGEnvError):
    """An invalid condition. The message begins with the condition."""


@dataclass(frozen=True)
class Condition:
    """A filter on rows: the text as typed, the columns that it reads, and the test, which is never null."""

    text: str
    columns: tuple[str, ...]
    test: pl.Expr

    @property
    def splits_groups(self) -> bool:
        """Whether it may match some rollouts of a group but not others."""
        return not ROLLOUT_SCHEMA.keys().isdisjoint(self.columns)


def parse_condition(text: str) -> Condition:
    """Parse a condition in SQL over `SCHEMA`: comparisons, `AND`, `OR`, `NOT`, `IN`, `BETWEEN`, `LIKE`, `IS NULL`,
    `CASE`, arithmetic and a few functions of one value. A ConditionError says what is valid.
    """

    def wrong(why: str) -> ConditionError:
        return ConditionError(visible(f"{text}: {why}", one_line=True))

    if not text.strip():
        raise ConditionError("the condition is empty; write for example task = 'chain_sum'")
    # Without what stands in quotes, where any sign is allowed.
    bare = re.sub(_STRING, "''", text)
    for operator, word in _OTHER_OPERATORS.items():
        if operator in bare:
            raise wrong(f"write {word} in place of {operator}")
    calls = {name.lower() for name in _CALL.findall(bare)} - {*_FUNCTIONS, *_KEYWORDS}
    if calls or re.search(r"\b(select|over)\b", bare, re.IGNORECASE):
        raise wrong(f"a condition is about one rollout; the functions are {', '.join(_FUNCTIONS)}")
    try:
        # An argument that is not UTF-8 has lone surrogates, which polars cannot take.
        test = pl.sql_expr(text.encode("utf-8", "replace").decode())
        columns = tuple(dict.fromkeys(test.meta.root_names()))
    except pl.exceptions.PolarsError as error:
        raise wrong(
            f"not a condition in SQL ({_first_line(error)}); write for example task = 'chain_sum' or group_id = 'ID'"
        ) from None
    unknown = [name for name in columns if name not in SCHEMA]
    if "solved" in unknown:
        raise wrong("unknown column solved; did you mean base_score >= solved_at?")
    if unknown:
        hint = did_you_mean(unknown[0], SCHEMA, _COLUMNS)
        raise wrong(f"unknown column {unknown[0]}; a text stands in single quotes: '{unknown[0]}'{hint}")
    if not columns:
        raise wrong(f"names no column; {_COLUMNS}")
    for name, words in WORDS.items():
        if not words_compared(text, name) <= {*words}:
            if not words:
                raise wrong(f"{name} is true or false")
            raise wrong(f"{name} is one of {', '.join(words)}")
    # As in SQL: a row for which the test is unknown does not match.
    test = test.fill_null(False)
    try:
        # Called for its exception: polars finds a wrong type only when a query runs.
        pl.DataFrame({name: [None] for name in SCHEMA}, schema=SCHEMA).lazy().filter(test).collect()
    except (pl.exceptions.PolarsError, OverflowError) as error:
        types = ", ".join(f"{name} is {_type_name(SCHEMA[name])}" for name in columns)
        raise wrong(f"{_first_line(error)}; {types}") from None
    return Condition(text, columns, test)


def words_compared(text: str, column: str) -> set[str]:
    """Return the words with which a condition compares a column by `=`, `<>` or `IN`."""
    name = rf"(?<![\w':])\"?{column}\"?"  # after a colon, `text` is a type
    is_equal = r"\s*(?:=|==|<>|!=)\s*"
    name_first = rf"{name}(?:{is_equal}({_STRING})|\s*(?:NOT\s+)?IN\s*\(([^()]*)\))"
    word_first = rf"({_STRING}){is_equal}{name}\b"
    words: set[str] = set()
    for match in re.finditer(f"{name_first}|{word_first}", text, re.IGNORECASE):
        listed = match[1] or match[2] or match[3] or ""
        words.update(word[1:-1] for word in re.findall(_STRING, listed))
    return words


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _type_name(dtype: pl.DataType) -> str:
    if dtype.is_integer():
        return "a whole number"
    if dtype.is_numeric():
        return "a number"
    return "true or false" if dtype == pl.Boolean() else "a text"
