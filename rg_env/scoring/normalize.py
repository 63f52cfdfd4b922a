r"""The answer inside the formatting that models like to put around it: `\boxed{7}`, `$7$`, `**7**`, or a code fence.

Invariant: what is removed is formatting and whitespace around the answer, never a word or a number. A text that gives
two answers, such as `9 \boxed{7}`, stays as it is. Linear in the answer.
"""

from __future__ import annotations

import re

_MOST_LAYERS = 4
"""`**$\\boxed{7}$**` has three."""
_FENCE = re.compile(r"```(?:text|plaintext|plain|txt|json|python|latex|math|markdown)?[ \t]*\r?\n", re.IGNORECASE)
_AROUND = ("$$", "$", "**")


def unwrapped(answer: str) -> str:
    r"""The answer without formatting around it; the same text if there is none.

    >>> unwrapped(r"**$\boxed{7}$**"), unwrapped("```\n7\n```"), unwrapped("**7** or **9**")
    ('7', '7', '**7** or **9**')
    """
    text = answer.strip()
    for _ in range(_MOST_LAYERS):
        inner = _inside(text).strip()
        if not inner or inner == text:
            break
        answer = text = inner
    return answer


def _inside(text: str) -> str:
    """The text without its outermost layer; the text itself if it has none, or if a second one follows the first."""
    fence = _FENCE.match(text)
    if fence and text.find("```", fence.end()) == len(text) - 3:
        return text[fence.end() : -3]
    for mark in _AROUND:
        inner = text[len(mark) : -len(mark)]
        if text.startswith(mark) and text.endswith(mark) and inner and mark not in inner:
            return inner
    if text.startswith(r"\boxed{") and _closing_brace(text, len(r"\boxed")) == len(text) - 1:
        return text[len(r"\boxed{") : -1]
    return text


def _closing_brace(text: str, opening: int) -> int:
    """Where the brace opened at `opening` is closed; −1 if nowhere."""
    depth = 0
    for match in re.finditer(r"[{}]", text[opening:]):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return opening + match.start()
    return -1
