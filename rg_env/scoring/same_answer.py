"""Whether two answers are the same text or the same number. Weaker than a scorer: no task is known here."""

from __future__ import annotations

import math


def is_same_answer(one: str, other: str) -> bool:
    """Compare without case and whitespace, or as numbers.

    >>> is_same_answer("1, 2", "1,2"), is_same_answer("0", "0.0"), is_same_answer("one", "1")
    (True, True, False)
    """
    return normal_form(one) == normal_form(other)


def normal_form(answer: str) -> str:
    """A text that is equal for answers that are the same text without case and whitespace, or the same number.

    A text with whitespace between its digits, such as a grid, is not a number.

    >>> normal_form("1, 2 "), normal_form("72.0") == normal_form("72"), normal_form("nan")
    ('1,2', True, 'nan')
    """
    try:
        number = float(answer)
    except ValueError:
        number = math.nan
    return f"{number + 0.0:.9g}" if math.isfinite(number) else "".join(answer.split()).casefold()
