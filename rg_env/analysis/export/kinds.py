"""What all kinds of export share: common settings, common columns, what a kind provides, and the result.

Invariant: an invalid setting is rejected before anything is read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any, ClassVar

import pyarrow as pa

from rg_env.analysis.export.left_out import LeftOut
from rg_env.choices import PerTask, Think
from rg_env.config import RGDumpConfig
from rg_env.dump.schema import GroupRecord
from rg_env.errors import RGEnvError

Row = dict[str, Any]
"""One line of the data set; its keys and types are the kind's `schema`."""

TEXT = pa.string()
NUMBER = pa.float64()
MESSAGES = pa.list_(pa.struct([("role", TEXT), ("content", TEXT)]))
"""A conversation, or a part of one, as in TRL's conversational formats."""

ORIGIN = [(name, TEXT) for name in ("task", "item", "group_id", "phase")] + [("step", pa.int64())]
"""The columns that every kind has: where a line comes from."""


def origin(group: GroupRecord) -> dict[str, Any]:
    """The columns `ORIGIN` of a group."""
    return {name: getattr(group, name) for name, _ in ORIGIN}


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
        where: conditions that groups and rollouts must match, see `parse_conditions`.
    """

    think: Think = Think.KEEP
    include_eval: bool = False
    tasks: tuple[str, ...] = ()
    per_task: PerTask | int | None = None
    seed: int = 42
    where: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.per_task, int):
            check("--per-task", self.per_task, self.per_task >= 1, f"at least 1, or one of {', '.join(PerTask)}")

    def takes_task(self, name: str) -> bool:
        return not self.tasks or any(fnmatchcase(name, pattern) for pattern in self.tasks)


@dataclass(frozen=True, slots=True)
class Kind(ABC):
    """A kind of data set. Subclasses are dataclasses of its settings.

    Attributes:
        summary: one sentence for the card: what a line is.
        schema: columns of a line.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    schema: ClassVar[pa.Schema]
    default_per_task: ClassVar[PerTask] = PerTask.ALL

    @abstractmethod
    def rows(
        self, group: GroupRecord, config: RGDumpConfig, think: Think, left_out: LeftOut
    ) -> Iterator[tuple[Row, str]]:
        """The lines made from a group, each with a text that is equal for duplicates.

        Args:
            config: that the group was generated with.
        """

    def settings(self) -> Mapping[str, object]:
        """By their names on the command line, without leading dashes."""
        return {setting.name.replace("_", "-"): getattr(self, setting.name) for setting in fields(self)}


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


def check(option: str, value: float, valid: bool, requirement: str) -> None:
    """Raise an `ExportError` that names the option and the requirement, unless the value is valid."""
    if not valid:
        raise ExportError(f"{option} {value:g}: must be {requirement}")
