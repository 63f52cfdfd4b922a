"""What the audit of a file tries on its rows, and the trying itself, which runs in processes of its own.

Invariant: a row is a pure function of the file, so is what is tried on it, and so is the result.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from rg_env.base.choices import SOLVED_AT, ResponseFormat
from rg_env.scoring.file_scorers import FileQuestion, file_question, score_here, with_each_answer
from rg_env.scoring.formatting import unwrapped
from rg_env.scoring.numbers import ROUNDING, read_number, read_quantity, same_quantity
from rg_env.scoring.options import chosen, options_of
from rg_env.scoring.parse import parse_response
from rg_env.tasks.item import SCORER_KEY
from rg_env.tasks.question_rows import Row

JUNK = ("x=x", "0", "0.0", "1", r"\emptyset", "()", "[]", "{}")
"""Answers that a policy may try on every question."""
_NOTHING = {r"\emptyset", r"\varnothing", "∅", "()", "[]", "{}", r"\{\}"}
"""What means the empty set, or may."""
_NAMED = re.compile(r"[^\W\d_]\w{0,9}\s*=")
_WORD = re.compile(r"[^\W\d_]{3}")
_SIGNS = "+-<>"
_IN_ASCII = str.maketrans("\u2212\u2013≤≥", "--<>")
_WHOLE = re.compile(r"([+-]?[0-9]+)\.0+")


class Tried(NamedTuple):
    """What is tried on a row: texts that must be solved, and texts that must not.

    Attributes:
        own: the right answers of the row, and other spellings of them.
    """

    number: int
    entry: Mapping[str, Any]
    own: tuple[str, ...]
    junk: tuple[str, ...]


class How(NamedTuple):
    """The settings that decide whether a response is scored."""

    longest: int
    normalize: bool
    format: str


def try_rows(rows: Sequence[Tried], how: How) -> dict[str, float]:
    """Return the rows that fail, by number, with the text that shows it: −1 is the first own answer, which is not
    solved, 1 the first junk, which is."""
    failed = {}
    for row in rows:
        if text := _failing(row, how):
            failed[str(row.number)] = float(text)
    return failed


def _failing(row: Tried, how: How) -> int:
    question = file_question(row.entry)
    assert isinstance(question, FileQuestion), question
    questions = list(with_each_answer(question, row.entry))
    # Own answers first: what does not pay these need not be tried with junk.
    for place, text in enumerate(row.own, 1):
        if not _is_solved(questions, text, how):
            return -place
    for place, text in enumerate(row.junk, 1):
        if _is_solved(questions, text, how):
            return place
    return 0


def _is_solved(questions: Sequence[FileQuestion], text: str, how: How) -> bool:
    """Return whether a response with this answer is solved. It takes the way of every response, in one process."""
    answer = parse_response(response_with(text), False, how.longest, ResponseFormat(how.format)).answer
    if answer is None:
        return False
    forms = {answer}
    if how.normalize:
        forms.add(unwrapped(answer))
    for question, form in itertools.product(questions, forms):
        with suppress(Exception):  # an answer that makes the scorer raise is wrong
            if score_here(question, form) >= SOLVED_AT:
                return True
    return False


def response_with(answer: str) -> str:
    """Return a response in the format."""
    return f"<think>\n</think>\n<answer>{answer}</answer>"


def other_spelling(row: Row) -> str | None:
    """Return how people write a right answer that a file has as a floating-point number: 27 for 27.0."""
    if match := _WHOLE.fullmatch(row.answer):
        return match[1]
    if row.is_float and "e" in row.answer:
        return f"{Decimal(row.answer):f}"
    return None


class RightAnswers:
    """The right answers of a question.

    Args:
        options: those of the question, by letter.
    """

    def __init__(self, answers: Sequence[str], options: Mapping[str, str]) -> None:
        # An option may be right, whatever its letter: which one is, only the scorer knows.
        self._meanings = set(map(meaning, (*answers, *options.values())))
        self._numbers = [number for number in map(read_quantity, answers) if number is not None]
        self._options = options
        self._letters = {chosen(answer, options) for answer in answers if options}

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> RightAnswers:
        """Return those of an entry of a file."""
        metadata, options = entry["metadata"], {}
        if metadata[SCORER_KEY] == "choice":
            options = options_of(entry["question"], metadata.get("options"))
        return cls(metadata.get("answers", [str(entry["answer"])]), options)

    def may_have(self, text: str) -> bool:
        """Return whether a text means the same as one of them, or may."""
        if meaning(text) in self._meanings:
            return True
        if self._options and chosen(text, self._options) in self._letters:
            return True
        # 50% is the same number as .5 and as 50, whatever these two are.
        number = read_quantity(text)
        return number is not None and any(same_quantity(number, other, ROUNDING) for other in self._numbers)


def junk_for(row: Row, others: Sequence[str]) -> tuple[str, ...]:
    """Return the junk for a row, without what means the same as one of its right answers.

    Args:
        others: right answers of other rows, of which three are taken.
    """
    options = row.options
    if row.scorer == "choice":
        options = options or options_of(row.question, None)
    right = RightAnswers(row.answers, options)

    def is_junk(text: str) -> bool:
        return bool(text) and not right.may_have(text)

    junk = list(filter(is_junk, (*JUNK, _without_last_letter(row.answer))))
    if row.scorer == "choice":
        junk = [text for text in junk if text not in row.question]
    taken = 0
    for other in others:
        if taken < 3 and is_junk(other) and other not in junk:
            junk.append(other)
            taken += 1
    return tuple(junk)


def _without_last_letter(answer: str) -> str:
    """Return an answer without its last letter; "" where it may mean the same: a number with a unit, an equation."""
    # `x = 5 cm` without its last letter is still 5.
    bare = _NAMED.sub("", unwrapped(answer), count=1)
    if "=" in bare or read_number(bare) is not None:
        return ""
    for place in reversed(range(len(bare))):
        if bare[place].isalpha():
            return bare[:place] + bare[place + 1 :]
    return ""


@functools.lru_cache(65536)
def meaning(text: str) -> str | Fraction:
    """Return what is equal for two texts that mean the same: the number, or the letters and digits, and in formulas
    the signs that change them."""
    bare = _NAMED.sub("", unwrapped(text).strip(), count=1).strip()
    # Whatever the unit: whether a wrong unit is rewarded has nothing to do with junk.
    number = read_number(bare)
    if number is not None:
        return number
    if bare in _NOTHING:
        return "∅"
    kept = "" if _WORD.search(bare) else _SIGNS
    signs = bare.casefold().translate(_IN_ASCII).lstrip("+")
    plain = "".join(character for character in signs if character.isalnum() or character in kept)
    return plain or bare
