"""The scorer `math` of a file of questions, by math-verify, which is an optional package.

A module of its own: scorer processes import it before they get an answer, and not in the time of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from math_verify import parse, verify


def math(answer: str, row: Mapping[str, Any]) -> float:
    """Return whether math-verify finds the same number, set or expression. Without its own timeouts: `guarded` has
    one."""
    # In $…$, since math-verify finds LaTeX only where it is marked as such.
    right = parse(f"${row['answer']}$", parsing_timeout=None)
    given = parse(f"${answer}$", parsing_timeout=None)
    return float(bool(verify(right, given, timeout_seconds=None)))
