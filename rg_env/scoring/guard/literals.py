"""Python literals, parsed, never evaluated.

Invariant: if `check` returns None, the text is a list, a tuple, a string in quotes, an integer, or several of these
separated by commas: evaluating it can only build such a value.
"""

from __future__ import annotations

import re

_MAX_DEPTH = 4
_MAX_DIGITS = 100

_TOKEN = re.compile(
    r"""
    (?P<item> -?(?:0|[1-9][0-9]*)(?![\w.]) | '[^'"\\\n\r]*'(?!['"\w]) | "[^'"\\\n\r]*"(?!['"\w]) )
    | (?P<open> [\[(] ) | (?P<close> [\])] ) | (?P<comma> , )
    """,
    re.VERBOSE | re.ASCII,
)
_BRACKETS = {"[": "]", "(": ")"}


def check(text: str) -> str | None:
    """The reason why the text is not such a literal, as a sentence to display; None if it is one. Takes linear time."""
    text = text.strip(" \t\r\n")
    if not text:
        return "the answer is empty"
    closing: list[str] = []
    before = "comma"  # what an item may follow: a comma, an opening bracket, the start
    place = 0
    while place < len(text):
        character = text[place]
        if character in " \t" or (character in "\r\n" and closing):
            place += 1
            continue
        match = _TOKEN.match(text, place)
        if match is None:
            shown = character if character.isprintable() else ascii(character)
            return f"`{shown}` at place {place + 1} is not part of a list, an integer or a quoted string"
        kind, token = match.lastgroup or "", match.group()
        place = match.end()
        if kind in ("item", "open") and before not in ("comma", "open"):
            return f"a comma is missing before `{token[:20]}`"
        if kind == "comma" and before not in ("item", "close"):
            return "a comma has nothing before it"
        if kind == "item" and len(token) > _MAX_DIGITS and token[0] not in "'\"":
            return f"a number has more than {_MAX_DIGITS} digits"
        if kind == "open":
            closing.append(_BRACKETS[token])
            if len(closing) > _MAX_DEPTH:
                return f"lists are nested more than {_MAX_DEPTH} deep"
        if kind == "close" and (not closing or closing.pop() != token):
            return f"`{token}` closes nothing"
        before = kind
    return "a list is not closed" if closing else None
