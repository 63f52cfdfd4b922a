"""Conditions on rollouts, as `--where` and `Dump.where` take them.

A condition is SQL as polars reads it: `phase = 'train' AND step BETWEEN 10 AND 20`. It means the same in every command,
and for one row whatever the others are. One that no record can satisfy (an unknown column, a wrong type, an unknown
word of a column with a fixed set) is an error that says what there is; words are checked with `=`, `<>` and `IN`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import polars as pl

from rg_env.base.choices import SOLVED_AT
from rg_env.base.errors import RGEnvError, did_you_mean
from rg_env.base.wording import visible
from rg_env.dump.frames import ROLLOUT_SCHEMA, SCHEMA
from rg_env.dump.schema import FileKind, NotKept, Outcome, Phase
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
_OTHER_OPERATORS = {"&&": "AND", "||": "OR"}
"""Operators of other languages, and what SQL has in their place."""
_COLUMNS = (
    "some columns are task, step, phase, outcome, base_score, violation, status and response_tokens; docs/dumps.md "
    "lists all"
)
_STRING = r"'(?:[^']|'')*'"
_CALL = re.compile(r"\b(\w+)\s*\(", re.ASCII)
_OTHER_CAST = re.compile(r"::(?!(?:text|varchar|string)\b(?!\s*\[))", re.IGNORECASE)
_EMPTY = "''"
_SAMPLES = {pl.String(): "x", pl.Boolean(): True}
"""A value of each type but numbers."""


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
    if _OTHER_CAST.search(bare):
        raise wrong("numbers and texts are not converted, but ::text makes a text of a number")
    try:
        # An argument that is not UTF-8 has lone surrogates, which polars cannot take.
        test = pl.sql_expr(text.encode("utf-8", "replace").decode())
        columns = tuple(dict.fromkeys(test.meta.root_names()))
    except pl.exceptions.PolarsError as error:
        raise wrong(
            f"not a condition in SQL ({_first_line(error)}); write for example task = 'chain_sum' or group_id = 'ID'"
        ) from None
    # SQL takes a last word for a name, without AS, too: `> 1k` would be `> 1`, and an AND be missed by nobody.
    if not test.meta.undo_aliases().meta.eq(test):
        raise wrong(f"{test.meta.output_name()!r} at the end would be a name; AND or an operator is missing before it")
    unknown = [name for name in columns if name not in SCHEMA]
    if "solved" in unknown:
        raise wrong(f"unknown column solved; did you mean base_score >= coalesce(solved_at, {SOLVED_AT})?")
    if unknown:
        name = unknown[0]
        # What is compared with something stands on the left, where a text without quotes does not.
        if re.search(rf"(?<![\w.]){re.escape(name)}\s*([=<>!]|in\b|like\b|between\b|is\b)", bare, re.IGNORECASE):
            raise wrong(f"unknown column {name}{did_you_mean(name, SCHEMA, _COLUMNS)}")
        raise wrong(f"unknown column {name}: put text in single quotes: '{name}'")
    if not columns:
        raise wrong(f"names no column; {_COLUMNS}")
    for name, words in WORDS.items():
        if not words_compared(text, name) <= {*words}:
            if not words:
                raise wrong(f"{name} is true or false")
            raise wrong(f"{name} is one of {', '.join(word or _EMPTY for word in words)}")
    # As in SQL: a row for which the test is unknown does not match.
    test = test.fill_null(False)
    try:
        # Called for its exception: polars finds a wrong type only when a query runs, some only where there is a value.
        rows = {name: [None, _SAMPLES.get(dtype, 1)] for name, dtype in SCHEMA.items()}
        pl.DataFrame(rows, schema=SCHEMA).lazy().filter(test).collect()
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
