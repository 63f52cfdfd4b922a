"""Scorers that tests name in settings."""

from collections.abc import Mapping
from typing import Any


def points(answer: str, row: Mapping[str, Any]) -> float:
    while answer == "hang":
        pass
    return float(row["points"][answer])


def never(answer: str, row: Mapping[str, Any]) -> float:
    raise AssertionError(answer)
