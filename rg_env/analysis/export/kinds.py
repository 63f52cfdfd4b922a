"""What all kinds of export share: the common settings, what a kind provides, and the result.

Invariant: an invalid setting is refused before anything is read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Protocol

import pyarrow as pa

from rg_env.analysis.export.left_out import LeftOut
from rg_env.choices import PerTask, Think
from rg_env.dump.schema import GroupRecord
from rg_env.errors import RGEnvError

Row = dict[str, Any]
"""One line of the data set; its keys and types are the kind's `schema`."""


class ExportError(RGEnvError):
    """An export with invalid settings, or one that cannot be written."""


@dataclass(frozen=True, slots=True)
class Common:
    """Settings of every export.

    Attributes:
        think: whether responses keep their think block.
        include_eval: include evaluation groups.
        tasks: names and patterns (`*`, `?`) of the tasks to include; empty for all.
        per_task: maximum number of examples per task; None for the kind's default.
        seed: for the random choice in tasks that have more.
    """

    think: Think = Think.KEEP
    include_eval: bool = False
    tasks: tuple[str, ...] = ()
    per_task: PerTask | int | None = None
    seed: int = 42

    def __post_init__(self) -> None:
        if isinstance(self.per_task, int) and self.per_task < 1:
            raise ExportError(f"--per-task {self.per_task}: at least 1, or one of {', '.join(PerTask)}")

    def takes_task(self, name: str) -> bool:
        return not self.tasks or any(fnmatchcase(name, pattern) for pattern in self.tasks)


class Kind(Protocol):
    """A kind of data set: a dataclass of its settings."""

    @property
    def name(self) -> str: ...

    @property
    def default_per_task(self) -> PerTask: ...

    @property
    def summary(self) -> str:
        """One sentence for the card: what a line is."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of a line."""

    def rows(self, group: GroupRecord, think: Think, left_out: LeftOut) -> Iterator[tuple[Row, str]]:
        """The lines made from a group, each with a text that is equal for duplicates."""

    def settings(self) -> Mapping[str, object]:
        """By their names on the command line, without dashes."""


@dataclass
class Exported:
    """The result of an export.

    Attributes:
        groups, rollouts: number read from texts.
        per_task: examples written, by task.
        left_out: what was not written, and why.
        notes: what the dump does not record, and warnings; one sentence each.
    """

    kind: Kind
    common: Common
    groups: int = 0
    rollouts: int = 0
    per_task: Counter[str] = field(default_factory=Counter)
    left_out: LeftOut = field(default_factory=LeftOut)
    notes: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return self.per_task.total()


def parse_per_task(text: str) -> PerTask | int:
    """`all`, `median`, `smallest` or a number.

    Raises:
        ExportError: it is none of them.
    """
    try:
        return int(text) if text.lstrip("-").isdigit() else PerTask(text)
    except ValueError:
        raise ExportError(f"--per-task {text}: a number, or one of {', '.join(PerTask)}") from None


def check_score(option: str, value: float, *, positive: bool = False) -> None:
    """Check that a score or difference lies in [0, 1]; with `positive`, in (0, 1].

    Raises:
        ExportError: it does not.
    """
    if math.isnan(value) or not 0 <= value <= 1 or (positive and value == 0):
        raise ExportError(f"{option} {value:g}: must be {'above 0 and at most 1' if positive else 'from 0 to 1'}")


def check_count(option: str, value: int) -> None:
    """Check that a number is at least 1.

    Raises:
        ExportError: it is not.
    """
    if value < 1:
        raise ExportError(f"{option} {value}: at least 1")
