r"""What an answer in LaTeX consists of: points, intervals, sets and lists, ratios, numbers with a base.

Invariant: nothing is evaluated; the parts of an answer are texts, which the caller compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain
from math import gcd
from typing import NamedTuple

_OPENING = {"(": "(", "[": "[", "{": "{", r"\{": "{", r"\langle": "("}
_CLOSING = {")": ")", "]": "]", "}": "}", r"\}": "}", r"\rangle": ")"}
_TOKEN = re.compile(r"\\[{}]|\\[A-Za-z]+|[][(){},;:]")
_HEAD = re.compile(
    r"(?:\( ?[A-Za-z\\]+(?: ?, ?[A-Za-z\\]+){1,9} ?\)|(?:\\mathbf|\\vec)?\{?[A-Za-z]\}?(?:_\{?\w+\}?)?'?)"
    r" ?(?:=|\\in\b) ?(?=[(\[{]|\\\{|\\langle|\\begin)"
)
_POINT_NAME = re.compile(r"[A-Z]'?\s*(?=\()")
_AND_OR = re.compile(r" ?,? ?(?:\\(?:text|mathrm|mbox) ?\{ ?(?:and|or) ?\}|\b(?:and|or)\b) ?")
_COMPARISON = re.compile(r"[<>|]|\\(?:le|ge|lt|gt|ne|mid|cup|cap)(?:q|qslant)?(?![A-Za-z])")
_ASSIGNMENT = re.compile(r"([A-Za-z]|\\[a-z]+)(?:_\{?\w+\}?)?\s*=([^=]+)")
_VECTOR = re.compile(r"\\begin\{[pbv]?matrix\}(.*)\\end\{[pbv]?matrix\}", re.DOTALL)
_PLUS_MINUS = re.compile(r"\\pm(?![A-Za-z])\s*")
_EMPTY_SETS = (r"\emptyset", r"\varnothing", r"\{\}", "{}", "empty set", "the empty set")
_BASE_NAMES = ("", "", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_BASE_NAME = "|".join(_BASE_NAMES[2:])
_BASED = re.compile(
    rf"(?:[A-Za-z] ?= ?)?\(?([0-9A-Fa-f.]{{1,200}})\)? ?(?:_|\(?(?:in )?base ) ?"
    rf"\{{? ?(?:\\text ?\{{)?\(?({_BASE_NAME}|[0-9]{{1,2}})[)}}]*"
)
_COLON = re.compile(r"\\colon\b|\\text\s?\{\s?(?:to|:)\s?\}|(?<=[0-9}]) to (?=[0-9\\])")
_RATIO_NAME = re.compile(r"^[A-Za-z](?: ?: ?[A-Za-z]){0,9} ?= ?")
_NO_RATIO = re.compile(r"[<>=|,]|\\(?:to|rightarrow|mid|in|[{}])(?![A-Za-z])")

_ORDERED = ("()", "[]", "[)", "(]", "column", "row")
_ALSO = {
    "()": ("column", "row"),
    "column": ("()", "[]"),
    "row": ("()", "[]"),
    "{}": ("",),
    "": ("{}", "()", "[]"),
}
"""Brackets of a right answer → other brackets that mean the same."""


class Parts(NamedTuple):
    """The parts of a point, an interval, a set or a list, of which there are at least two.

    Attributes:
        brackets: `()`, `[]`, `[)`, `(]`, `{}`, empty for a list without brackets, `column` or `row` for a vector.
        names: of the parts, if they are different letters, as in `x = 3, y = 7`; otherwise empty.
    """

    brackets: str
    items: tuple[str, ...]
    names: tuple[str, ...] = ()

    @property
    def form(self) -> str:
        """The brackets; `()` for `x = 3, y = 7`, which is a point."""
        return "()" if self.names else self.brackets


class Based(NamedTuple):
    """A number with its base, such as `1010_2`."""

    digits: str
    base: str


def is_empty_set(text: str) -> bool:
    return " ".join(text.split()).lower().replace("{ }", "{}").replace(r"\{ \}", r"\{\}") in _EMPTY_SETS


def based_number(text: str) -> Based | None:
    r"""Return the number with a base that a text is.

    >>> based_number(r"1010_{\text{two}}"), based_number("(2f)_{16}"), based_number("a_1")
    (Based(digits='1010', base='2'), Based(digits='2F', base='16'), None)
    """
    match = _BASED.fullmatch(text.strip())
    # `a_1` and `A_{12}` are symbols.
    if match is None or not match[1][0].isdigit():
        return None
    base = match[2]
    if base in _BASE_NAMES:
        base = str(_BASE_NAMES.index(base))
    return Based(match[1].upper().lstrip("0") or "0", base)


def ratio_of(text: str) -> list[str]:
    """Return the parts of a ratio such as `2:3` or `1 to 2 to 3`; none if the text is none."""
    text = _RATIO_NAME.sub("", _COLON.sub(":", text))
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    if ":" not in text or _NO_RATIO.search(text):
        return []
    parts = list(_split(text, ":"))
    return parts if all(parts) and len(parts) > 1 else []


def is_time(ratio: list[str]) -> bool:
    """Return whether a ratio may be a time of day: two digits of minutes, and no ratio in lowest terms."""
    if len(ratio) != 2 or not all(part.isdecimal() for part in ratio) or len(ratio[1]) != 2:
        return False
    hours, minutes = map(int, ratio)
    return hours <= 24 and minutes < 60 and (gcd(hours, minutes) != 1 or minutes < 10)


def parts_of(text: str) -> Parts | None:
    """Return the parts of a point, an interval, a set or a list; None if a text is none, or has only one."""
    text = text.strip()
    if head := _HEAD.match(text):
        text = text[head.end() :]
    if vector := _VECTOR.fullmatch(text):
        return _vector(vector[1])
    brackets, inner = _brackets(text)
    if not brackets and (name := _POINT_NAME.match(text)):
        brackets, inner = _brackets(text[name.end() :])
        if "," not in inner:
            return None
    if not brackets:
        if _COMPARISON.search(text):
            return None
        inner = _AND_OR.sub(",", text)
    items = list(_split(inner, ",;"))
    if brackets in ("", "{}"):
        items = list(chain.from_iterable(map(_plus_and_minus, items)))
        # Both signs are a set, in no order.
        if "\\pm" in text:
            brackets = "{}"
    if len(items) < 2 or not all(items):
        return None
    return _without_names(brackets, items)


def _vector(inner: str) -> Parts | None:
    if "&" in inner and r"\\" not in inner:
        return Parts("row", tuple(map(str.strip, inner.split("&"))))
    if r"\\" in inner and "&" not in inner:
        return Parts("column", tuple(map(str.strip, inner.split(r"\\"))))
    return None


def _brackets(text: str) -> tuple[str, str]:
    """Return the brackets around all of a text, and what is inside; no brackets if there are none."""
    opening = closing = None
    depth = 0
    for token in _TOKEN.finditer(text):
        if token[0] in _OPENING:
            opening = opening or token
            depth += 1
        elif token[0] in _CLOSING:
            depth -= 1
            closing = token
            if depth == 0 and token.end() < len(text):
                return "", text
    if opening is None or closing is None or depth or opening.start() or closing.end() < len(text):
        return "", text
    return _OPENING[opening[0]] + _CLOSING[closing[0]], text[opening.end() : closing.start()]


def _split(text: str, separators: str) -> Iterator[str]:
    """Yield the parts of a text between separators that stand in no brackets."""
    depth = start = 0
    for token in _TOKEN.finditer(text):
        if token[0] in _OPENING:
            depth += 1
        elif token[0] in _CLOSING:
            depth -= 1
        elif depth == 0 and token[0] in separators:
            yield text[start : token.start()].strip()
            start = token.end()
    yield text[start:].strip()


def _plus_and_minus(item: str) -> list[str]:
    """Return an item with each of its signs, if it has one `\\pm`."""
    if len(_PLUS_MINUS.findall(item)) != 1:
        return [item]
    before, after = _PLUS_MINUS.split(item)
    # Without a sign at the beginning, `=+4`.
    plus = "+" if before.strip() and not before.rstrip().endswith("=") else ""
    return [f"{before}{plus}{after}", f"{before}-{after}"]


def _without_names(brackets: str, items: list[str]) -> Parts:
    """Take the names of the parts off: the one of `x = 1, 2` and `x = 1, x = 2` says nothing."""
    named = [match for match in map(_ASSIGNMENT.fullmatch, items) if match]
    letters = [match[1] for match in named]
    values = tuple(match[2].strip() for match in named)
    if len(named) == len(items) and len(set(letters)) == len(letters):
        return Parts(brackets, values, tuple(letters))
    if len(named) == len(items) and len(set(letters)) == 1:
        return Parts(brackets, values)
    if len(named) == 1 and _ASSIGNMENT.fullmatch(items[0]):
        return Parts(brackets, (*values, *items[1:]))
    return Parts(brackets, tuple(items))


def parts_agree(right: Parts, given: Parts, agree: Callable[[str, str], bool | None]) -> bool:
    """Return whether two answers have the same parts, in the same order unless both are sets or lists.

    The form of the right one decides which brackets of the given one mean the same.
    """
    if len(right.items) != len(given.items):
        return False
    values = dict(zip(given.names, given.items, strict=False))
    if right.names and given.names:
        pairs = zip(right.names, right.items, strict=True)
        return all(name in values and agree(item, values[name]) for name, item in pairs)
    is_bare = right.names and not given.brackets
    if given.form != right.form and given.form not in _ALSO.get(right.form, ()) and not is_bare:
        return False
    if given.brackets in _ORDERED or right.form in _ORDERED:
        orders = [given.items]
        # `y = 7, x = 3` is a point, too.
        if given.names:
            orders.append(tuple(map(values.__getitem__, sorted(values))))
        return any(all(map(agree, right.items, items)) for items in orders)
    left = list(given.items)
    for item in right.items:
        found = next((place for place, other in enumerate(left) if agree(item, other)), None)
        if found is None:
            return False
        del left[found]
    return True
