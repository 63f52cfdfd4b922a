"""Braces of LaTeX, for whatever cuts answers out of texts; imports nothing of the package."""

from __future__ import annotations

import re

BRACE = re.compile(r"\\boxed\{|\\[{}]|[{}]")
"""A brace that groups, or one after a backslash, which is a sign of a set and groups nothing."""
_DEPTH = {r"\boxed{": 1, "{": 1, "}": -1}


def closing_brace(text: str, opening: int) -> int:
    """Return where the brace opened at `opening` is closed; −1 if nowhere."""
    depth = 0
    for match in BRACE.finditer(text, opening):
        depth += _DEPTH.get(match[0], 0)
        if depth == 0:
            return match.start()
    return -1
