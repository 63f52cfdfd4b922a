"""Completion of the filter line: names of tasks, outcomes, violations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.suggester import Suggester

from rg_env.analysis.visible import visible
from rg_env.browser.query import ALLOWED, KEYS

if TYPE_CHECKING:
    from rg_env.browser.app import Browser


class Completion(Suggester):
    """Completes the last word."""

    def __init__(self, app: Browser) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._app = app

    async def get_suggestion(self, value: str) -> str | None:
        last = value.rpartition(" ")[2]
        key, colon, typed = last.partition(":")
        if not last:
            return None
        choices = (f"{name}:" for name in KEYS) if not colon else self._values(key)
        begun = last if not colon else typed.rpartition(",")[2]
        return next((value + choice[len(begun) :] for choice in choices if choice.startswith(begun)), None)

    def _values(self, key: str) -> list[str]:
        if key == "task":
            return [name for name in self._app.task_names if visible(name, one_line=True) == name]
        return list(ALLOWED.get(key, ()))
