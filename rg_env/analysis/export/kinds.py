"""What every kind of export has in common: its settings, and what a kind has to say.

Invariant: a setting that cannot work is refused before anything is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Protocol

from rg_env.dump.schema import GroupRecord
from rg_env.errors import RGEnvError

if TYPE_CHECKING:
    import pyarrow as pa

    from rg_env.analysis.export.left_out import LeftOut

Row = dict[str, Any]
"""One line of the data set; its keys and types are the kind's `schema`."""


class ExportError(RGEnvError):
    """An export that cannot be made as asked."""


class Think(StrEnum):
    """What becomes of the think block of responses."""

    KEEP = "keep"
    DROP = "drop"


class PerTask(StrEnum):
    """How many examples a task may have, where it is not a number."""

    ALL = "all"
    MEDIAN = "median"
    """As many as the median task has (the lower of the two in the middle)."""
    SMALLEST = "smallest"
    """As many as the smallest task has: all equal."""


@dataclass(frozen=True, slots=True)
class Common:
    """Settings of every export.

    Attributes:
        think: whether responses keep their think block.
        include_eval: take evaluation groups, too.
        tasks: names and patterns (`*`, `?`) of the tasks to take; none for all.
        per_task: how many examples a task may have; None for the kind's own default.
        seed: of the draw where a task has more.
    """

    think: Think = Think.KEEP
    include_eval: bool = False
    tasks: tuple[str, ...] = ()
    per_task: PerTask | int | None = None
    seed: int = 42

    def __post_init__(self) -> None:
        if isinstance(self.per_task, int) and self.per_task < 1:
            raise ExportError(f"--per-task {self.per_task}: at least 1, or all, median, smallest")

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

    def schema(self) -> pa.Schema:
        """Columns of a line."""

    def rows(self, group: GroupRecord, think: Think, left_out: LeftOut) -> Iterator[tuple[Row, str]]:
        """The lines that a group gives, each with the text by which duplicates are known."""

    def settings(self) -> Mapping[str, object]:
        """By their names on the command line, without dashes."""


def parse_per_task(text: str) -> PerTask | int:
    """`all`, `median`, `smallest` or a number.

    Raises:
        ExportError: it is none of them.
    """
    try:
        return int(text) if text.lstrip("-").isdigit() else PerTask(text)
    except ValueError:
        raise ExportError(f"--per-task {text}: a number, or one of {', '.join(PerTask)}") from None


def check_share(option: str, value: float, *, above: bool = False) -> None:
    """Refuse a number that is no score.

    Args:
        option: its name.
        value: has to lie in [0, 1].
        above: 0 itself is refused, too.

    Raises:
        ExportError: it does not.
    """
    if math.isnan(value) or not 0 <= value <= 1 or (above and value == 0):
        raise ExportError(f"{option} {value:g}: a difference or score {'above 0' if above else 'from 0'} to 1")


def check_count(option: str, value: int) -> None:
    """Refuse a number below 1.

    Raises:
        ExportError: it is.
    """
    if value < 1:
        raise ExportError(f"{option} {value}: at least 1")
