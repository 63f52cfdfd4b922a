"""A dump reduced to what matches conditions, for commands that read texts.

Invariant: records and frames of the selection agree: a rollout is in both or in neither. Moves of levels and records of
training are not filtered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from rg_env.analysis.where import Condition, ConditionError, parse_conditions
from rg_env.dump.read.dump import Dump
from rg_env.dump.schema import GroupRecord, LedgerRecord

if TYPE_CHECKING:
    from rg_env.dump import FileKind
    from rg_env.dump.read.dump import Run


def select(dump: Dump, where: Sequence[str]) -> Dump:
    """The rollouts that match all conditions; the dump itself without any. Reads the frames once.

    Args:
        where: see `parse_conditions`.

    Raises:
        ConditionError: a condition is invalid, or nothing matches.
    """
    if not where:
        return dump
    conditions = parse_conditions(where)
    chosen: dict[str, set[int]] = {}
    tasks: set[str] = set()
    columns = dict.fromkeys(["group_id", "repetition", "task", *(condition.column for condition in conditions)])
    for frame in dump.frames(list(columns)):
        tasks.update(frame["task"].unique())
        matching = frame.filter(condition.test for condition in conditions)
        places = matching.group_by("group_id").agg("repetition")
        for group_id, repetitions in places.iter_rows():
            chosen.setdefault(group_id, set()).update(repetitions)
    if tasks and not chosen:
        raise ConditionError(f"no rollout matches {' and '.join(where)}; the tasks are {', '.join(sorted(tasks))}")
    return _Selection(dump.runs, dump.watch, dump._problems, dump._replaced_by_run, tuple(conditions), chosen)


@dataclass
class _Selection(Dump):
    """A filtered dump.

    Attributes:
        chosen: group id → repetitions that match.
    """

    conditions: tuple[Condition, ...] = ()
    chosen: dict[str, set[int]] = field(default_factory=dict, repr=False)

    def _records(
        self, kinds: Collection[FileKind], of: type[Any], all_attempts: bool, ids: Collection[str] | None = None
    ) -> Iterator[Any]:
        record: Any
        for record in super()._records(kinds, of, all_attempts, ids):
            if not isinstance(record, GroupRecord | LedgerRecord):
                yield record
            elif repetitions := self.chosen.get(record.group_id):
                rollouts: list[Any] = [rollout for rollout in record.rollouts if rollout.repetition in repetitions]
                yield record if len(rollouts) == len(record.rollouts) else replace(record, rollouts=rollouts)

    def _frames_of(self, run: Run, columns: Collection[str], texts: bool, all_attempts: bool) -> Iterator[pl.DataFrame]:
        wanted = list(dict.fromkeys([*columns, *(condition.column for condition in self.conditions)]))
        for frame in super()._frames_of(run, wanted, texts, all_attempts):
            yield frame.filter(condition.test for condition in self.conditions).select(frame.columns[0], *columns)
