r"""Other forms of an answer that is correct but carries extra formatting: `\boxed{7}`, `**7**`, `7.`, `1,234`.

Invariant: a form holds the one answer that the text gives, with formatting removed or respelled. A text that gives two
answers, such as `9 \boxed{7}`, has no form that picks one. The question decides spelling and layout, never content.
Forms are scored like any answer, guard included; a caller uses one only if it scores more. Linear in the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain, zip_longest

_MAX_WRAPPINGS = 8
"""Layers that are removed: `**$\\boxed{7}$**` has three."""
_FENCE_OPENING = re.compile(r"```[\w+-]*[ \t]*")
_PAIRS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ("`", "`"))
_COMMANDS_AROUND = (r"\boxed", r"\fbox", r"\text", r"\mathrm", r"\mathbf", r"\textbf")
_LEAD_IN = re.compile(
    r"((so|thus|hence|therefore),? ?)?(((the|my|our) )?((final|correct) )?(answer|result|solution|it|this))?"
    r" ?(is|equals)? ?[:=]?",
    re.IGNORECASE,
)
"""What may introduce a boxed answer. Anything else in front of the box could be another answer."""
_MAX_LEAD_IN = 60
_NUMBER = r"[+-]?\d+(?:\.\d+)?"
_FRACTION = re.compile(rf"\\[dt]?frac\s*\{{\s*({_NUMBER})\s*\}}\s*\{{\s*({_NUMBER})\s*\}}")
_RESPELLED = (
    (re.compile(r"\\(?:left|right|displaystyle)(?![a-zA-Z])|\\[,;:!]"), ""),
    (re.compile(r"\\(?:times|cdot)(?![a-zA-Z])"), "*"),
    (re.compile(r"\\div(?![a-zA-Z])"), "/"),
    (_FRACTION, r"\1/\2"),
)
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_POINT_ZERO = re.compile(r"(?<![\w.])(-?\d+)\.0+(?![\w.])", re.ASCII)
_WORD = re.compile(r"[A-Za-z]{2,20}")


def other_forms(answer: str, question: str = "") -> list[str]:
    r"""The answer unwrapped, in plain signs, without thousands separators, as the question writes it; each that is new.

    >>> other_forms(r"**\boxed{\frac{1}{2}}**.")
    ['\\frac{1}{2}', '1/2']
    >>> other_forms("```\n1,234\n```"), other_forms("7.")
    (['1,234', '1234'], ['7'])
    >>> other_forms("72.0", "A triangle has the angles 30.0° and 78.0°."), other_forms("false", "Reply True or False.")
    (['72'], ['False'])
    >>> other_forms("plain")
    []
    """
    forms: list[str] = []
    form = answer
    for rule in (_unwrap, _plain_signs, _without_separators, *(_as_in(question) if question else ())):
        form = rule(form)
        if form and form not in (answer, *forms):
            forms.append(form)
    return forms


def _unwrap(text: str) -> str:
    for _ in range(_MAX_WRAPPINGS):
        inner = _without_one_wrapping(text.strip())
        if inner == text:
            break
        text = inner
    return text


def _without_one_wrapping(text: str) -> str:
    opening, newline, body = text.partition("\n")
    if newline and _FENCE_OPENING.fullmatch(opening) and body.endswith("```") and "```" not in body[:-3]:
        return body[:-3]
    for before, after in _PAIRS:
        inner = text[len(before) : -len(after)]
        if text.startswith(before) and text.endswith(after) and inner and before not in inner and after not in inner:
            return inner
    for command in _COMMANDS_AROUND:
        if text.startswith(command + "{") and _closing_brace(text, len(command)) == len(text) - 1:
            return text[len(command) + 1 : -1]
    lead_in, box, rest = text.partition(r"\boxed")
    if box and len(lead_in) <= _MAX_LEAD_IN and _LEAD_IN.fullmatch(" ".join(lead_in.replace("*", " ").split())):
        rest = rest.removesuffix(".")
        if rest.startswith("{") and _closing_brace(rest, 0) == len(rest) - 1:
            return rest[1:-1]
    return text[:-1] if text.endswith(".") and not text.endswith("..") else text


def _closing_brace(text: str, opening: int) -> int | None:
    """Where the brace opened at `opening` is closed, or None."""
    depth = 0
    for place in range(opening, len(text)):
        if text[place] == "{":
            depth += 1
        elif text[place] == "}":
            depth -= 1
            if depth == 0:
                return place
    return None


def _plain_signs(text: str) -> str:
    for pattern, plain in _RESPELLED:
        text = pattern.sub(plain, text)
    return text


def _without_separators(text: str) -> str:
    return _THOUSANDS.sub(lambda found: found[0].replace(",", ""), text)


def _as_in(question: str) -> tuple[Callable[[str], str], ...]:
    """Rules that write an answer as the question writes the same thing."""

    def spelled(text: str) -> str:
        """`false` as `False`, if the question has the word in one spelling; `72.0` as `72`, if it writes `30.0`."""
        if _WORD.fullmatch(text):
            spellings = set(re.findall(rf"\b{text}\b", question, re.IGNORECASE))
            return spellings.pop() if len(spellings) == 1 else text
        return _POINT_ZERO.sub(r"\1", text) if _POINT_ZERO.search(question) else text

    def laid_out(text: str) -> str:
        """A grid with the spaces of the question's grid of the same shape, or with single spaces if there is none."""
        rows = [line.split() for line in text.splitlines() if line.strip()]
        if len(rows) < 2:
            return text
        return _in_layout(rows, question) or "\n".join(map(" ".join, rows))

    return spelled, laid_out


def _in_layout(rows: list[list[str]], question: str) -> str | None:
    """The rows with the spaces of the last block of the question whose lines have as many words; None if none has."""
    lines = question.splitlines()
    filled = [number for number, line in enumerate(lines) if line.strip()]
    shape, shapes = [len(row) for row in rows], [len(lines[number].split()) for number in filled]
    for start in range(len(filled) - len(rows), -1, -1):
        if shapes[start : start + len(rows)] == shape:
            block = "\n".join(lines[filled[start] : filled[start + len(rows) - 1] + 1])
            words = [word for row in rows for word in row]
            return "".join(chain.from_iterable(zip_longest(re.split(r"\S+", block), words, fillvalue="")))
    return None
