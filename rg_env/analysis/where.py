"""Conditions such as `task=chain_sum` or `step>=20`, as people type them, as polars expressions.

Invariant: a condition that cannot be true of any record (a column that does not exist, a word where a number is due, a
violation that nobody knows) is an error that names what would be right, never an empty result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from rg_env.dump.frames import ROLLOUT_SCHEMA, SCHEMA
from rg_env.dump.schema import FileKind, NotKept, Outcome, Phase
from rg_env.errors import RGEnvError
from rg_env.scoring.types import Status, Violation

_CONDITION = re.compile(r"\s*(\w+)\s*(==|!=|>=|<=|=|>|<)\s*(.*?)\s*", re.DOTALL)
_ALIASES = {"difficulty": "level"}
_KNOWN: dict[str, list[str]] = {
    "phase": list(Phase),
    "outcome": list(Outcome),
    "violation": ["none", *Violation],
    "status": list(Status),
    "text": ["none", *FileKind],
    "text_reason": ["none", *NotKept],
}
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class ConditionError(RGEnvError):
    """A condition that does not say what it should."""


@dataclass(frozen=True)
class Condition:
    """What rows have to be like.

    Attributes:
        text: as typed.
        column: what it looks at.
        test: true for the rows that are meant; never null.
    """

    text: str
    column: str
    test: pl.Expr

    @property
    def splits_groups(self) -> bool:
        """True where it may keep some rollouts of a group and not others."""
        return self.column in ROLLOUT_SCHEMA


def parse_conditions(texts: Iterable[str]) -> list[Condition]:
    """The conditions, all of which have to hold.

    Args:
        texts: column, one of `= == != > >= < <=`, value. With `=` and `!=` there may be several values with commas
            between; `none` stands for what is absent.

    Raises:
        ConditionError: what is wrong, and what would be right.
    """
    return [_parse(text) for text in texts]


def _parse(text: str) -> Condition:
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise ConditionError(f"--where {text!r}: write a condition such as task=chain_sum, step>=20 or phase=eval")
    name, operator, value = match.groups()
    column = _ALIASES.get(name, name)
    if column not in SCHEMA:
        raise ConditionError(f"--where {text!r}: there is no column {name!r}; there are {', '.join(SCHEMA)}")
    if operator in ("=", "==", "!="):
        # A level is JSON, which has commas of its own.
        words = [value] if column == "level" else [word.strip() for word in value.split(",")]
        test = pl.any_horizontal(_equals(text, column, word) for word in words).fill_null(False)
        return Condition(text, column, test if operator != "!=" else test.not_())
    if not SCHEMA[column].is_numeric():
        raise ConditionError(f"--where {text!r}: {name} has no order; use = or !=")
    number = pl.lit(_number(text, column, value))
    tests = {
        ">": pl.col(column) > number,
        ">=": pl.col(column) >= number,
        "<": pl.col(column) < number,
        "<=": pl.col(column) <= number,
    }
    return Condition(text, column, tests[operator].fill_null(False))


def _equals(text: str, column: str, word: str) -> pl.Expr:
    known = _KNOWN.get(column)
    if known is not None and word not in known:
        raise ConditionError(f"--where {text!r}: {column} is one of {', '.join(known)}")
    if word == "none":
        return pl.col(column).is_null()
    if SCHEMA[column].is_numeric():
        return pl.col(column) == _number(text, column, word)
    if SCHEMA[column] == pl.Boolean():
        if word.lower() not in _TRUTH:
            raise ConditionError(f"--where {text!r}: {column} is true or false")
        return pl.col(column) == _TRUTH[word.lower()]
    return pl.col(column) == word


def _number(text: str, column: str, word: str) -> float:
    try:
        return int(word) if SCHEMA[column].is_integer() else float(word)
    except ValueError:
        what = "a whole number" if SCHEMA[column].is_integer() else "a number"
        raise ConditionError(f"--where {text!r}: {column} is {what}") from None
