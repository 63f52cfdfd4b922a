"""Text and numbers as people read them; imports nothing, so that what only needs a word loads no terminal."""

from __future__ import annotations

import re

# Unicode categories Cc, Cf, Cs, Zl and Zp without the line feed; a test compares this list with Python's tables.
_HIDDEN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u2064\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)
_TAB = "    "


def visible(text: str, *, one_line: bool = False) -> str:
    r"""Replace invisible characters.

    Control characters become their Unicode pictures, others their number; a tab becomes four spaces.

    Args:
        text: anything.
        one_line: replace line feeds as well.

    >>> visible("red: \x1b[31m, left: \u202e, lone: \ud800")
    'red: ␛[31m, left: <U+202E>, lone: <U+D800>'
    """
    shown = text
    # Most texts have nothing to replace, which Python tells eight times as fast as the pattern.
    if not text.replace("\n", "").isprintable():
        shown = _HIDDEN.sub(lambda match: _picture(match[0]), text)
    return shown.replace("\n", "␊") if one_line else shown


def storable(text: str) -> str:
    """Return the text with `?` for what UTF-8 cannot hold: lone surrogates."""
    return text.encode(errors="replace").decode()


def _picture(character: str) -> str:
    if character == "\t":
        return _TAB
    number = ord(character)
    if number < 0x20:
        return chr(0x2400 + number)  # Unicode has a picture of each, in the same order
    return "␡" if number == 0x7F else f"<U+{number:04X}>"


def yes_or_no(value: bool) -> str:
    return "yes" if value else "no"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "finding"), counted(2000, "finding")
    ('1 finding', '2,000 findings')
    """
    if number == 1:
        return f"{number:,} {noun}"
    return f"{number:,} {noun}s"


def rate(value: float | None, low: float | None = None, high: float | None = None, *, digits: int = 0) -> str:
    """Return a rate as people read it, with its interval if that is known.

    >>> rate(0.5678), rate(0.5678, 0.51, 0.63), rate(None), rate(0.0042, digits=1)
    ('57%', '57% [51%, 63%]', '–', '0.4%')
    """
    if value is None:
        return "–"
    text = f"{value:.{digits}%}"
    if low is None or high is None:
        return text
    return f"{text} [{low:.{digits}%}, {high:.{digits}%}]"


_NUMBER = re.compile(r"([-+]?\d+(?:[.,]\d+|(?:,\d{3})+)?(?:e[-+]?\d+)?) ?(%|k|s|sec|seconds|)")
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(,\d{3})+")
_UNITS = {"%": 0.01, "k": 1000, "s": 1, "sec": 1, "seconds": 1, "": 1}


def number_meant(text: str, *, whole: bool) -> str:
    """Return the number that a text means which is none: with a comma, a unit or a percent sign; "" if it means none.

    >>> [number_meant(text, whole=False) for text in ("0,7", "1,000", "50%", "5s", "2.5k", "ten")]
    ['0.7', '1000', '0.5', '5', '2500', '']
    >>> [number_meant(text, whole=True) for text in ("1e3", "2.5")]
    ['1000', '']
    """
    found = _NUMBER.fullmatch(text.strip())
    if found is None:
        return ""
    number, unit = found.groups()
    if "," in number:
        number = number.replace(",", "" if _THOUSANDS.fullmatch(number) else ".")
    value = float(number) * _UNITS[unit]
    if whole and not value.is_integer():
        return ""
    return f"{value:.10g}"
