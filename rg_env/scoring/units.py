"""Units after a number in an answer: which words are one, and which two mean different things.

Invariant: nothing is converted. Two units contradict each other unless one is left out, or all words of one are among
the words of the other, after abbreviations and plurals are removed.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_NAMES = """
m meter metre
km kilometer kilometre
cm centimeter centimetre
mm millimeter millimetre
ft foot feet
in inch inche
yd yard
mi mile
g gram gm
kg kilogram kilo
mg milligram
pound lb £
oz ounce
s second sec
ms millisecond
min minute
h hour hr
year yr
mi/h mph
km/h kmh kph kmph
l liter litre
ml milliliter millilitre
gal gallon
$ dollar usd
€ euro eur
¥ yen
₹ rupee rs
¢ cent
degree deg °
°c celsius
°f fahrenheit
hz hertz
j joule
w watt
n newton
v volt
pa pascal
ev electronvolt
mol mole
ohm Ω
"""
"""A unit in a line: its abbreviation and its names."""
_SHORT = {name: line.split()[0] for line in _NAMES.strip().splitlines() for name in line.split()}
"""Every name of a unit, and its abbreviation, in lower case → its abbreviation."""
_OTHER_WORDS = """
and or not no nor never neither but except without if when unless is isn't are aren't was to plus minus over squared
cubed mod modulo sin cos tan log ln exp pi sqrt inf infinity infty half halves third quarter dozen dozens
"""
_NOT_UNITS = frozenset(_OTHER_WORDS.split())
"""Words after which a text is something else than a number with a unit: another number, two, or none."""
_MOST_WORDS = 6
_IN_TEXT = re.compile(r"\\(?:text|textrm|textbf|mathrm|mathbf|mbox|operatorname) ?\{([^{}]*)\}")
_DEGREE = re.compile(r"\^ ?(?:\\circ|\{ ?\\circ ?\})|\\degree|°")
_POWER = re.compile(r"\^\{?(-?[0-9])\}?")
_WORD = re.compile(r"([A-Za-zµμΩ$€£¢%°'][A-Za-zµμΩ'’-]*)\.?(\^-?[0-9])?")
_VOWEL = re.compile("[aeiou]")
_BETWEEN = re.compile(r" ?(?:(/)|\\cdot|\*) ?| ")


class Unit(NamedTuple):
    """A unit in short form.

    Attributes:
        is_symbol: it might as well be a symbol of mathematics, as in `5m`: a letter that is not marked as text.
    """

    short: str
    is_symbol: bool = False


PERCENT = Unit("%")


def read_unit(text: str) -> Unit | None:
    r"""Return the unit that a text is, which follows a number; None for any other text.

    >>> read_unit(" square meters").short, read_unit(r"\text{ m}/\text{s}").short, read_unit(" or so")
    ('m^2', 'm/s', None)
    """
    # A letter that follows the number at once, or after a space, is a symbol of mathematics for all that is known.
    is_attached = not text.startswith((" ", "("))
    text = text.strip()
    if text.startswith("(") and text.endswith(")"):
        text, is_attached = text[1:-1], False
    plain = _POWER.sub(r"^\1", _DEGREE.sub("°", _IN_TEXT.sub(r" \1 ", text)))
    in_text = bool(_IN_TEXT.search(text))
    words = _split(" ".join(plain.split()).replace(" ^", "^"))
    if not words:
        return None
    short = _shorten(words)
    if short in ("%", "percent", "percentage", "pct"):
        return PERCENT
    if in_text:
        return Unit(short)
    if all(word in _SHORT for word, _ in words):
        # `5m` and `5 m` may be a product, `5 cm` and `5 m/s` are not.
        return Unit(short, is_symbol=len(words) == 1 and len(words[0][0]) == 1 and words[0][0].isalpha())
    # `6x`, `6 ab` and `6xyz` are products.
    if is_attached or not any(len(word) > 2 and _VOWEL.search(word) for word, _ in words):
        return None
    return Unit(short)


def _split(text: str) -> list[tuple[str, str]]:
    """Return the words of a unit in lower case, each with its power or the `/` before it; empty if it is not a unit."""
    words: list[tuple[str, str]] = []
    place, mark = 0, ""
    while place < len(text):
        word = _WORD.match(text, place)
        # Words that negate, join or calculate make another text of it.
        if word is None or len(words) == _MOST_WORDS or word[1].lower() in _NOT_UNITS:
            return []
        words.append((word[1].lower(), mark + (word[2] or "")))
        place = word.end()
        between = _BETWEEN.match(text, place)
        if place < len(text) and between is None:
            return []
        if between is not None:
            place, mark = between.end(), between[1] or ""
    return words


def _shorten(words: list[tuple[str, str]]) -> str:
    """Return the words in short form, in one spelling."""
    parts: list[str] = []
    power = ""
    for word, mark in words:
        # `dollars per hour` and `dollars an hour` are `$/h`.
        if word in ("per", "a", "an") and parts:
            parts.append("/")
        elif word in ("square", "sq", "cubic"):
            power = "^3" if word == "cubic" else "^2"
        elif mark.startswith("/"):
            parts += ["/", _short(word) + mark[1:]]
        elif _short(word) not in parts:
            parts.append(_short(word) + (mark or power))
            power = ""
    return " ".join(parts).replace(" / ", "/")


def _short(word: str) -> str:
    singular = word
    if len(word) > 2 and word.endswith("s") and not word.endswith("ss"):
        singular = word[:-1]
    return _SHORT.get(word) or _SHORT.get(singular) or singular


def units_agree(one: Unit | None, other: Unit | None) -> bool:
    """Return whether two units do not contradict each other."""
    if one is None or other is None or one.short == other.short:
        return True
    if "/" in one.short or "/" in other.short:
        return False
    words, others = set(one.short.split()), set(other.short.split())
    return words <= others or others <= words
