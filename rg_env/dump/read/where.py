"""Conditions on rollouts in SQL, as polars reads it: `phase = 'train' AND step BETWEEN 10 AND 20`.

Invariant: a condition means the same in every command, and for one row whatever the others are. A condition that no
record can satisfy (an unknown column, a wrong type, an unknown word of a column with a fixed set) is an error that says
what there is, never an empty result; words are checked in comparisons with `=`, `<>` and `IN`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from rg_env.dump.read.frames import ROLLOUT_SCHEMA, SCHEMA
from rg_env.dump.schema import FileKind, NotKept, Outcome, Phase
from rg_env.errors import RGEnvError
from rg_env.sanitize import visible
from rg_env.scoring.types import Status, Violation

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
_STRING = r"'(?:[^']|'')*'"
_CALL = re.compile(r"\b(\w+)\s*\(", re.ASCII)


class ConditionError(RGEnvError):
    """An invalid condition. The message begins with the condition."""


@dataclass(frozen=True)
class Condition:
    """A filter on rows.

    Attributes:
        text: as typed.
        columns: that it reads.
        test: true for matching rows; never null.
    """

    text: str
    columns: tuple[str, ...]
    test: pl.Expr

    @property
    def splits_groups(self) -> bool:
        """Whether it may match some rollouts of a group but not others."""
        return not ROLLOUT_SCHEMA.keys().isdisjoint(self.columns)


def parse_condition(text: str) -> Condition:
    """Parse a condition in SQL over the columns of `frames.SCHEMA`: comparisons, `AND`, `OR`, `NOT`, `IN`, `BETWEEN`,
    `LIKE`, `IS NULL`, `CASE`, arithmetic and a few functions of one value.

    Raises:
        ConditionError: it is invalid; the message says what is valid.
    """

    def wrong(why: str) -> ConditionError:
        return ConditionError(visible(f"{text}: {why}", one_line=True))

    bare = re.sub(_STRING, "''", text)
    calls = {name.lower() for name in _CALL.findall(bare)} - {*_FUNCTIONS, *_KEYWORDS}
    if calls or re.search(r"\b(select|over)\b", bare, re.IGNORECASE):
        raise wrong(f"a condition is about one rollout; the functions are {', '.join(_FUNCTIONS)}")
    try:
        test = pl.sql_expr(text.encode("utf-8", "replace").decode())
        columns = tuple(dict.fromkeys(test.meta.root_names()))
    except pl.exceptions.PolarsError as error:
        raise wrong(f"not a condition in SQL ({_first_line(error)}); write for example task = 'chain_sum'") from None
    unknown = [name for name in columns if name not in SCHEMA]
    if unknown:
        hint = f"unknown column {unknown[0]}; a text stands in single quotes: '{unknown[0]}'; "
        raise wrong(f"{hint}the columns are {', '.join(SCHEMA)}")
    if not columns:
        raise wrong(f"names no column; the columns are {', '.join(SCHEMA)}")
    for name, words in WORDS.items():
        if not words_compared(text, name) <= {*words}:
            raise wrong(f"{name} is one of {', '.join(words)}" if words else f"{name} is true or false")
    test = test.fill_null(False)
    try:
        pl.DataFrame({name: [None] for name in SCHEMA}, schema=SCHEMA).lazy().filter(test).collect()
    except (pl.exceptions.PolarsError, OverflowError) as error:
        types = ", ".join(f"{name} is {_type_name(SCHEMA[name])}" for name in columns)
        raise wrong(f"{_first_line(error)}; {types}") from None
    return Condition(text, columns, test)


def parse_conditions(texts: Iterable[str]) -> list[Condition]:
    """Parse conditions, all of which must hold. Errors as `parse_condition`."""
    return [parse_condition(text) for text in texts]


def words_compared(text: str, column: str) -> set[str]:
    """The words with which a condition compares a column by `=`, `<>` or `IN`."""
    comparison = rf"(?:=|==|<>|!=)\s*({_STRING})|(?:NOT\s+)?IN\s*\(([^()]*)\)"
    found = re.finditer(rf"(?<![\w'])\"?{column}\"?\s*(?:{comparison})", text, re.IGNORECASE)
    return {word[1:-1] for match in found for word in re.findall(_STRING, match[1] or match[2])}


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _type_name(dtype: pl.DataType) -> str:
    if dtype.is_integer():
        return "a whole number"
    return "a number" if dtype.is_numeric() else "true or false" if dtype == pl.Boolean() else "a text"
