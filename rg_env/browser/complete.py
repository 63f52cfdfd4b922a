"""Completion of the filter line: column names, task names, and values of columns that have few."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from textual.suggester import Suggester

from rg_env.analysis.where import closed_values
from rg_env.browser.query import COLUMNS
from rg_env.sanitize import visible

_FIRST = ("task", "outcome", "violation", "phase", "step", "mean", "best")
"""Columns that are suggested before others."""
_BEGUN = re.compile(r"(?:^|\s)(?:(?P<name>\w+)|(?P<column>\w+)!?=(?P<values>\S*))$")
_IN_A_TEXT = re.compile(r"(?:^|\s)/")


class Completion(Suggester):
    """Completes the last word.

    Args:
        task_names: returns the names of the tasks read so far.
    """

    def __init__(self, task_names: Callable[[], Iterable[str]]) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._task_names = task_names

    async def get_suggestion(self, value: str) -> str | None:
        last = _BEGUN.search(value)
        if last is None or _IN_A_TEXT.search(value):
            return None
        if last["name"]:
            begun, choices = last["name"], [f"{name}=" for name in dict.fromkeys([*_FIRST, *COLUMNS])]
        else:
            begun, choices = last["values"].rpartition(",")[2], self._values(last["column"])
        return next((value + choice[len(begun) :] for choice in choices if choice.startswith(begun)), None)

    def _values(self, column: str) -> list[str]:
        if column == "task":
            return [name for name in self._task_names() if visible(name) == name and re.fullmatch(r"[^\s,]+", name)]
        return closed_values(column, COLUMNS[column]) if column in COLUMNS else []
