"""Checks that lines are in the order in which a run writes them.

Invariant of that order: attempts ascend; within an attempt and phase, calls of `generate()` and steps ascend unless
calls overlap; the lines of a step's training batch are consecutive; a task never makes the same move twice in a row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rg_env.dump.schema import GroupRecord, LedgerRecord, LevelRecord, TrainedRecord


@dataclass(slots=True)
class GroupOrder:
    """Checks the order of groups."""

    attempt: int = 0
    last: dict[str, tuple[int, int]] = field(default_factory=dict)

    def goes_back(self, record: GroupRecord | LedgerRecord, in_order: bool) -> str | None:
        """What is out of order, or None.

        Args:
            in_order: False if calls of `generate()` overlap, so that only attempts are in order.
        """
        if record.attempt != self.attempt:
            if record.attempt < self.attempt:
                return f"attempt {record.attempt} after attempt {self.attempt}"
            self.attempt = record.attempt
            self.last.clear()
        call, step = self.last.get(record.phase, (0, 0))
        now = record.call, record.step or 0
        self.last[record.phase] = now
        if not in_order:
            return None
        if now[0] < call:
            return f"call {now[0]} after call {call}"
        return f"step {now[1]} after step {step}" if now[1] < step else None


@dataclass(slots=True)
class TrainedOrder:
    """Checks the order of training records. Keeps a number per record."""

    last: tuple[int, int] = (0, 0)
    seen: set[int] = field(default_factory=set)

    def goes_back(self, record: TrainedRecord) -> str | None:
        """What is out of order, or None."""
        before, self.last = self.last, (record.attempt, record.step)
        if self.last >= before:
            return None
        return f"attempt {record.attempt}, step {record.step} after attempt {before[0]}, step {before[1]}"

    def repeats(self, record: TrainedRecord) -> bool:
        """Whether the group already occurred in this step."""
        key = hash((record.attempt, record.step, record.group_id))
        if key in self.seen:
            return True
        self.seen.add(key)
        return False


@dataclass(slots=True)
class LevelOrder:
    """Checks the order of moves of levels."""

    place: tuple[int, int] = (0, 0)
    last: dict[str, LevelRecord] = field(default_factory=dict)

    def goes_back(self, record: LevelRecord, in_order: bool) -> str | None:
        """What is out of order, or None. `in_order` as in `GroupOrder.goes_back`."""
        before, self.place = self.place, (record.attempt, record.step if in_order else 0)
        if self.place >= before:
            return None
        return f"attempt {record.attempt}, step {record.step} after attempt {before[0]}, step {before[1]}"

    def repeats(self, record: LevelRecord) -> bool:
        """Whether this is the task's last move once more; a level always moves away from where it is."""
        before, self.last[record.task] = self.last.get(record.task), record
        return before == record
