"""What is a number in an answer: the one place that says so, for every scorer of files.

Invariant: a number is read exactly, in time linear in the length of the text, and nothing is evaluated.
"""

from __future__ import annotations

import re
from fractions import Fraction

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,100}|[0-9]{1,400})"
_NUMBER = re.compile(rf"([+-]?(?:{_DIGITS}(?:\.[0-9]{{0,400}})?|\.[0-9]{{1,400}}))(?:[eE]([+-]?[0-9]{{1,3}}))?")
_FRACTION = re.compile(rf"([+-]?{_DIGITS})\s?/\s?({_DIGITS})")


def read_number(text: str) -> Fraction | None:
    """Return the number that a text is, exactly; None for any other text. In time linear in its length.

    >>> read_number("1,234.50"), read_number(" -3/4 "), read_number("2e3"), read_number("7 apples")
    (Fraction(2469, 2), Fraction(-3, 4), Fraction(2000, 1), None)
    """
    # Matched before it is converted: Fraction takes minutes for `1e999999999`, and int refuses 5,000 digits.
    text = text.strip().replace("\u2212", "-")
    if match := _FRACTION.fullmatch(text):
        above, below = (int(part.replace(",", "")) for part in match.groups())
        return Fraction(above, below) if below else None
    if match := _NUMBER.fullmatch(text):
        power = Fraction(10) ** int(match[2] or 0)
        return Fraction(match[1].replace(",", "")) * power
    return None


def is_close(number: Fraction, right: Fraction, tolerance: float) -> bool:
    """Return whether a number differs from the right one by at most `tolerance`, relative to the right one."""
    return abs(number - right) <= Fraction(tolerance) * abs(right)
