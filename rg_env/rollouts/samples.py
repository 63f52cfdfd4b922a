"""A few rollouts of a step for people to read, as rows of a table. Pure: no files, no SkyRL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rg_env.dump.schema import GroupRecord, Outcome, RolloutRecord, answered
from rg_env.sanitize import visible

COLUMNS = ("step", "item", "which", "score", "base_score", "violation", "status", "answer", "response")
"""Columns of a row."""

_LONGEST_TEXT = 4000
"""Characters of a response or answer."""


class RolloutSamples:
    """The groups of a phase since the last `take`.

    Args:
        groups: how many groups to keep of each phase; those in which some responses are correct and some are not come
            first.
    """

    def __init__(self, groups: int) -> None:
        self._most = groups
        self._kept: dict[str, list[GroupRecord]] = {}

    def add(self, phase: str, records: Iterable[GroupRecord]) -> None:
        """Keep some of these groups."""
        kept = [*self._kept.get(phase, []), *(record for record in records if answered(record.rollouts))]
        self._kept[phase] = sorted(kept, key=lambda record: record.outcome is not Outcome.MIXED)[: self._most]

    def take(self, phase: str) -> list[tuple[object, ...]]:
        """The best and the worst rollout of each kept group as rows of `COLUMNS`; then start again with none."""
        return [row for group in self._kept.pop(phase, []) for row in _rows(group)]


def _rows(group: GroupRecord) -> Sequence[tuple[object, ...]]:
    ordered = sorted(answered(group.rollouts), key=lambda rollout: rollout.score)
    chosen = [("best", ordered[-1]), ("worst", ordered[0])] if len(ordered) > 1 else [("only", ordered[0])]
    return [(-1 if group.step is None else group.step, group.item, which, *_facts(one)) for which, one in chosen]


def _facts(rollout: RolloutRecord) -> tuple[object, ...]:
    return (
        rollout.score,
        rollout.base_score,
        str(rollout.violation or ""),
        str(rollout.status),
        visible(rollout.answer or "")[:_LONGEST_TEXT],
        visible(rollout.conversation[-1]["content"])[:_LONGEST_TEXT],
    )
