"""A list of problems found in a dump, or of changes made to it.

Invariant: the list is bounded, however damaged the dump is; findings beyond the bound are counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

MAX_KEPT = 1000
"""Findings that are listed one by one."""


class Kind(StrEnum):
    """Base of the kinds of findings. `advice` says what to do about one; it may be empty."""

    advice: str

    def __new__(cls, value: str, advice: str = "") -> Self:
        kind = str.__new__(cls, value)
        kind._value_ = value
        kind.advice = advice
        return kind


@dataclass(frozen=True, slots=True)
class Finding[K: "Kind"]:
    """One thing that was found.

    Attributes:
        file: the file's name.
        line: from 1; 0 if it concerns the whole file.
    """

    kind: K
    file: str
    line: int
    what: str

    def __str__(self) -> str:
        place = f"{self.file}, line {self.line}" if self.line else self.file
        return f"{place}: {self.what}" + (f" ({self.kind.advice})" if self.kind.advice else "")


@dataclass
class Findings[K: "Kind"]:
    """The first findings one by one, and a count of all.

    Attributes:
        kept: `MAX_KEPT` at most.
        counts: of all, by kind.
    """

    kept: list[Finding[K]] = field(default_factory=list)
    counts: Counter[K] = field(default_factory=Counter)

    def add(self, kind: K, file: str, line: int, what: str) -> None:
        self.counts[kind] += 1
        if len(self.kept) < MAX_KEPT:
            self.kept.append(Finding(kind, file, line, what))

    @property
    def total(self) -> int:
        return self.counts.total()

    @property
    def more(self) -> int:
        """Number of findings that are not in `kept`."""
        return self.total - len(self.kept)
