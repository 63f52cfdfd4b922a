r"""A second chance for answers that are right and dressed up: `\boxed{7}`, `**7**`, `7.`, `1,234`.

Invariant: a form is made from the answer alone, by rules that take away or respell what carries no meaning. What it
earns is for the guard and the scorer to say, as for any answer; whoever uses a form takes it only where it earns more.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_MAX_WRAPPINGS = 8
"""Layers that are taken off: `**$\\boxed{7}$**` has three."""
_FENCE = re.compile(r"```[\w+-]*[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)
_PAIRS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ("`", "`"))
_COMMANDS_AROUND = (r"\boxed", r"\fbox", r"\text", r"\mathrm", r"\mathbf", r"\textbf")
_NUMBER = r"[+-]?\d+(?:\.\d+)?"
_FRACTION = re.compile(rf"\\[dt]?frac\s*\{{\s*({_NUMBER})\s*\}}\s*\{{\s*({_NUMBER})\s*\}}")
_RESPELLED = (
    (re.compile(r"\\(?:left|right|displaystyle)(?![a-zA-Z])|\\[,;:!]"), ""),
    (re.compile(r"\\(?:times|cdot)(?![a-zA-Z])"), "*"),
    (re.compile(r"\\div(?![a-zA-Z])"), "/"),
    (_FRACTION, r"\1/\2"),
)
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")


def other_forms(answer: str) -> list[str]:
    r"""The answer without its wrapping, then in plain signs, then without thousands separators; each that is new.

    >>> other_forms(r"**\boxed{\frac{1}{2}}**.")
    ['\\frac{1}{2}', '1/2']
    >>> other_forms("```\n1,234\n```"), other_forms("7.")
    (['1,234', '1234'], ['7'])
    >>> other_forms("plain")
    []
    """
    forms: list[str] = []
    form = answer
    for rule in _RULES:
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
    if found := _FENCE.fullmatch(text):
        return found[1]
    for before, after in _PAIRS:
        inner = text[len(before) : -len(after)]
        if text.startswith(before) and text.endswith(after) and inner and before not in inner and after not in inner:
            return inner
    for command in _COMMANDS_AROUND:
        if text.startswith(command + "{") and _closing_brace(text, len(command)) == len(text) - 1:
            return text[len(command) + 1 : -1]
    if text.count(r"\boxed{") == 1:  # said in a sentence: "So it is \boxed{7}"
        opening = text.index(r"\boxed{") + len(r"\boxed")
        if (closing := _closing_brace(text, opening)) is not None:
            return text[opening + 1 : closing]
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


_RULES: tuple[Callable[[str], str], ...] = (_unwrap, _plain_signs, _without_separators)
