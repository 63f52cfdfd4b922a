"""Scorers without the guard, for tests of what holds behind it: workers make them in place of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rg_env.scoring import guard, scorer, upstream

MAKE_SCORER = f"{__name__}:make_scorer"
# So that the workers of every scorer can make them: they read no files of tests.
scorer._UPSTREAM_MODULES.append(__name__)


def make_scorer(task: str, options: dict[str, Any]) -> Callable[[bytes], Any]:
    """As `upstream.make_scorer`, but every answer gets to the scorer as it is."""
    return _with_guard(task, options, lambda entry, answer: (dict(entry), answer, f"<answer>{answer}</answer>"))


def make_scorer_behind_endless_guard(task: str, options: dict[str, Any]) -> Callable[[bytes], Any]:
    """As `upstream.make_scorer`, but the guard reads the answer `endless` for ever."""

    def admit(entry: Any, answer: str) -> Any:
        while answer == "endless":
            pass
        return _ADMIT(entry, answer)

    return _with_guard(task, options, admit)


_ADMIT = guard.admit


def _with_guard(task: str, options: dict[str, Any], admit: Callable[[Any, str], Any]) -> Callable[[bytes], Any]:
    score = upstream.make_scorer(task, options)

    def score_with_guard(request: bytes) -> Any:
        # For this request only: the worker has other scorers, too.
        guard.admit = admit  # type: ignore[assignment]
        try:
            return score(request)
        finally:
            guard.admit = _ADMIT

    return score_with_guard
