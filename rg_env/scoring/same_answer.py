"""Whether two answers are the same text or the same number. Weaker than a scorer: no task is known here."""

from __future__ import annotations

import re
from fractions import Fraction

_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,1000}(?:\.[0-9]{0,1000})?|\.[0-9]{1,1000})")
_AROUND_SIGNS = re.compile(r"\s*([][(){},;:])\s*")


def is_same_answer(one: str, other: str) -> bool:
    """Compare without case and extra whitespace, or as exact numbers.

    >>> is_same_answer("1, 2", "1,2"), is_same_answer("0", "0.0"), is_same_answer("1234567890", "1234567891")
    (True, True, False)
    """
    return normal_form(one) == normal_form(other)


def normal_form(answer: str) -> str:
    """A text that is equal for answers that are the same text but for case and extra whitespace, or the same number.

    >>> normal_form("1, 2 "), normal_form("72.0") == normal_form("72"), normal_form("1 23")
    ('1,2', True, '1 23')
    """
    text = answer.strip()
    if _NUMBER.fullmatch(text):
        return str(Fraction(text))
    return _AROUND_SIGNS.sub(r"\1", " ".join(text.split()).casefold())
