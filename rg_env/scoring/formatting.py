"""What is formatting in an answer: the one place that says so, without knowing its task.

Invariant: time is linear in the length of the text.
"""

from __future__ import annotations

import re
from fractions import Fraction

_MOST_LAYERS = 4
"""`**$\\boxed{7}$**` has three."""
_FENCE = re.compile(r"```(?:text|plaintext|plain|txt|json|python|latex|math|markdown)?[ \t]*\r?\n", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,1000}(?:\.[0-9]{0,1000})?|\.[0-9]{1,1000})")
_AROUND_SIGNS = re.compile(r"\s*([][(){},;:])\s*")


def unwrapped(answer: str) -> str:
    r"""Return the answer without `\boxed{}`, `$…$`, `**…**` or a code fence around it; the same text if there is none.

    No word and no number is removed: a text that gives two answers, such as `9 \boxed{7}`, stays as it is.

    >>> unwrapped(r"**$\boxed{7}$**"), unwrapped("```\n7\n```"), unwrapped("**7** or **9**")
    ('7', '7', '**7** or **9**')
    """
    text = answer.strip()
    # A bound, since each layer takes time by the length of the text.
    for _ in range(_MOST_LAYERS):
        inner = _without_layer(text).strip()
        if not inner or inner == text:
            break
        answer = text = inner
    return answer


def _without_layer(text: str) -> str:
    """Take the outermost layer off a text; the text itself if it has none, or if a second one follows the first."""
    fence = _FENCE.match(text)
    if fence and text.find("```", fence.end()) == len(text) - 3:
        return text[fence.end() : -3]
    # `$$` before `$`, which it begins with.
    for mark in ("$$", "$", "**"):
        inner = text[len(mark) : -len(mark)]
        if text.startswith(mark) and text.endswith(mark) and inner and mark not in inner:
            return inner
    if text.startswith(r"\boxed{") and closing_brace(text, len(r"\boxed")) == len(text) - 1:
        return text[len(r"\boxed{") : -1]
    return text


def closing_brace(text: str, opening: int) -> int:
    """Return where the brace opened at `opening` is closed; −1 if nowhere."""
    depth = 0
    for match in re.finditer(r"[{}]", text[opening:]):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return opening + match.start()
    return -1


def canonical(answer: str) -> str:
    """Return a text that is equal for equal numbers, and for answers that differ in case and extra whitespace only.

    >>> canonical("1, 2 "), canonical("72.0"), canonical("1 23"), canonical("TRUE")
    ('1,2', '72', '1 23', 'true')
    """
    text = answer.strip()
    # As a fraction, so that 72.0 and 72 are equal. The pattern has no exponent: 1e999999999 would take minutes.
    if _NUMBER.fullmatch(text):
        return str(Fraction(text))
    return _AROUND_SIGNS.sub(r"\1", " ".join(text.split()).casefold())
