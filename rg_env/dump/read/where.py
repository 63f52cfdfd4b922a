"""Conditions such as `task=chain_sum` or `step>=20`, parsed into polars expressions.

Invariant: conditions mean the same in every command. A condition that no record can satisfy (an unknown column, a word
where a number is expected, an unknown violation) is an error that lists the valid values, never an empty result.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from rg_env.dump.read.frames import ROLLOUT_SCHEMA, SCHEMA
from rg_env.dump.schema import FileKind, NotKept, Outcome, Phase
from rg_env.dump.strings import escape
from rg_env.errors import RGEnvError
from rg_env.sanitize import visible
from rg_env.scoring.types import Status, Violation

_NONE = "none"
"""Matches missing values."""
CONDITION = re.compile(r"\s*(\w+)\s*(==|!=|>=|<=|=|>|<)\s*(.*?)\s*", re.DOTALL)
"""The syntax of a condition: column, operator and value."""
_CLOSED: dict[str, list[str]] = {
    "phase": list(Phase),
    "outcome": list(Outcome),
    "violation": [*Violation, _NONE],
    "status": list(Status),
    "text": [*FileKind, _NONE],
    "text_reason": [*NotKept, _NONE],
}
_COMPARE = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class ConditionError(RGEnvError):
    """An invalid condition. The message begins with the condition."""


@dataclass(frozen=True)
class Condition:
    """A filter on rows.

    Attributes:
        text: as typed.
        column: the column that is tested.
        test: true for matching rows; never null.
    """

    text: str
    column: str
    test: pl.Expr

    @property
    def splits_groups(self) -> bool:
        """Whether it may match some rollouts of a group but not others."""
        return self.column in ROLLOUT_SCHEMA


def parse_conditions(texts: Iterable[str], columns: Mapping[str, pl.DataType] = SCHEMA) -> list[Condition]:
    """Parse conditions, all of which must hold.

    Args:
        texts: column, one of `= == != > >= < <=`, value. `=` and `!=` accept several values separated by commas: words,
            in which `*` matches any characters and `?` any single one; numbers, and ranges of numbers such as `10..20`,
            `10..` and `..20`, including both ends; `none` for missing values. A level is compared literally.
        columns: the known columns and their types.

    Raises:
        ConditionError: a condition is invalid; the message says what is valid.
    """
    return [_parse(text, columns) for text in texts]


def closed_values(column: str, dtype: pl.DataType) -> list[str]:
    """The values that a column can have; empty if any value is possible."""
    return _CLOSED.get(column, ["true", "false"] if dtype == pl.Boolean() else [])


def _parse(text: str, columns: Mapping[str, pl.DataType]) -> Condition:
    def wrong(why: str) -> ConditionError:
        return ConditionError(f"{visible(text, one_line=True)}: {why}")

    match = CONDITION.fullmatch(text)
    if match is None:
        raise wrong("not a condition; write for example task=chain_sum, step>=20 or phase=eval")
    column, sign, value = match.groups()
    if column not in columns:
        raise wrong(f"unknown column {column!r}; use one of {', '.join(columns)}")
    dtype = columns[column]
    try:
        test = _compares(column, dtype, sign, value) if sign in _COMPARE else _is(column, dtype, value)
    except ValueError as error:
        raise wrong(str(error)) from None
    test = test.fill_null(False)
    return Condition(text, column, test.not_() if sign == "!=" else test)


# The functions below raise a ValueError that says what is valid.


def _compares(column: str, dtype: pl.DataType, sign: str, value: str) -> pl.Expr:
    if not dtype.is_numeric():
        raise ValueError(f"{column} is not a number; use = or !=")
    result: pl.Expr = _COMPARE[sign](pl.col(column), _number(column, dtype, value))
    return result


def _is(column: str, dtype: pl.DataType, value: str) -> pl.Expr:
    # A level is JSON, which contains commas.
    words = [value] if column == "level" else [word.strip() for word in value.split(",")]
    words = [word for word in words if word]
    if not words:
        raise ValueError(f"write a value, or {_NONE} for missing values")
    return pl.any_horizontal(_is_one(column, dtype, word) for word in words)


def _is_one(column: str, dtype: pl.DataType, word: str) -> pl.Expr:
    known = closed_values(column, dtype)
    if dtype == pl.Boolean():
        if word.lower() not in _TRUTH:
            raise ValueError(f"{column} is true or false")
        return pl.col(column) == _TRUTH[word.lower()]
    if known and word not in known:
        raise ValueError(f"{column} is one of {', '.join(known)}")
    if word == _NONE:
        return pl.col(column).is_null()
    if dtype.is_numeric():
        return _is_number(column, dtype, word)
    word = escape(word)  # as in the files
    if column != "level" and ("*" in word or "?" in word):
        return pl.col(column).str.contains(_regex(word))
    return pl.col(column) == word


def _is_number(column: str, dtype: pl.DataType, word: str) -> pl.Expr:
    low, dots, high = word.partition("..")
    if not dots:
        return pl.col(column) == _number(column, dtype, word)
    if not low and not high:
        raise ValueError("write a range such as 10..20, 10.. or ..20")
    least, most = (_number(column, dtype, end) if end else None for end in (low, high))
    if least is not None and most is not None and least > most:
        raise ValueError(f"the lower end of a range comes first: write {high}..{low}")
    if least is None:
        return pl.col(column) <= most
    return pl.col(column) >= least if most is None else pl.col(column).is_between(least, most)


def _regex(pattern: str) -> str:
    """A regular expression equivalent to `fnmatch.fnmatchcase`, except that `[` is literal."""
    wild = {"*": ".*", "?": "."}
    return f"^(?s:{''.join(wild.get(character) or pl.escape_regex(character) for character in pattern)})$"


def _number(column: str, dtype: pl.DataType, word: str) -> float:
    try:
        number = int(word) if dtype.is_integer() else float(word)
    except ValueError:
        number = math.nan
    if math.isnan(number) or (dtype.is_integer() and not -(2**63) <= number < 2**63):
        raise ValueError(f"{column} is {'a whole number' if dtype.is_integer() else 'a number'}")
    return number
