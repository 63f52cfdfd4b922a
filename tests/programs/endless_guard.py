"""Scorers whose guard does not end for one answer: workers make them in place of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rg_env.scoring import guard, pools, upstream

MAKE_SCORER = f"{__name__}:make_scorer"
# So that the workers of every scorer can make them: they read no files of tests.
pools._UPSTREAM_MODULES.append(__name__)
_ADMIT = guard.admit


def make_scorer(task: str, options: dict[str, Any]) -> Callable[[bytes], Any]:
    """As `upstream.make_scorer`, but the guard reads the answer `endless` for ever."""
    score = upstream.make_scorer(task, options)

    def admit(entry: Any, answer: str) -> Any:
        while answer == "endless":
            pass
        return _ADMIT(entry, answer)

    def score_with_guard(request: bytes) -> Any:
        # For this request only: the worker has other scorers, too.
        guard.admit = admit
        try:
            return score(request)
        finally:
            guard.admit = _ADMIT

    return score_with_guard
