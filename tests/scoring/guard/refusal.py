"""What the guard says about an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rg_env.scoring import guard
from rg_env.scoring.expressions import Refusal


def refusal_of(entry: Mapping[str, Any], answer: str) -> str | None:
    """The reason why the answer is rejected; None if it may be scored."""
    try:
        guard.admit(entry, answer)
    except Refusal as refusal:
        return str(refusal)
    return None
