"""Independent solvers: each computes the correct answer to one task's items from the question.

A solver takes (question, metadata, stored answer) and returns the correct answer, or several of them where the question
has several, or None where it has no clear answer. Metadata is read only where the question cannot be parsed, and never
where upstream puts its own solution. The stored answer is read only by solvers that verify it, for puzzles with many
solutions: they return it if it is correct, and `WRONG` otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Solver = Callable[[str, dict[str, Any], Any], "str | list[str] | None"]

WRONG = "the stored answer is wrong"


def verified(holds: bool, answer: Any) -> str:
    """The stored answer if the check holds."""
    return str(answer) if holds else WRONG
