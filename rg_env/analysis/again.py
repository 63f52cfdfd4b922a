"""Judging a recorded response a second time, by what its line holds: the item, the task's options, the text.

Invariant: nothing of the first verdict goes into the second one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rg_env.dump import Dump, GroupRecord, RolloutRecord
from rg_env.dump.run_settings import RunSettings, default_settings, settings_of
from rg_env.scoring import Status, Verdict, Violation, shared_scorer
from rg_env.tasks.entry_json import decode_entry


@dataclass(frozen=True, slots=True)
class Question:
    """What a response answers.

    Attributes:
        entry: Reasoning Gym's entry.
        config: the task's options, None where all are its defaults.
    """

    entry: Mapping[str, Any]
    config: Mapping[str, Any] | None

    @classmethod
    def of(cls, group: GroupRecord) -> Question | None:
        """The group's question; None where its line does not hold it, as in Atropos' files."""
        try:
            entry, config = decode_entry(group.entry), decode_entry(group.task_config)
            known = isinstance(entry["metadata"]["source_dataset"], str) and isinstance(config, Mapping)
        except (ValueError, KeyError, TypeError):
            return None
        return cls(entry, config or None) if known else None


@dataclass(frozen=True, slots=True)
class Marks:
    """What a response earned by itself, before any rule about its group."""

    violation: Violation | None
    status: Status
    raw_score: float | None
    tagged_score: float | None
    base_score: float

    @classmethod
    def of(cls, judged: RolloutRecord | Verdict) -> Marks:
        """Those of a recorded rollout or of a new verdict."""
        violation = judged.parsed.violation if isinstance(judged, Verdict) else judged.violation
        return cls(violation, judged.status, judged.raw_score, judged.tagged_score, judged.base_score)

    def is_as(self, other: Marks) -> bool:
        """Whether both say the same; numbers may differ by rounding."""
        if (self.violation, self.status) != (other.violation, other.status):
            return False
        mine = (self.raw_score, self.tagged_score, self.base_score)
        return all(
            same(a, b) for a, b in zip(mine, (other.raw_score, other.tagged_score, other.base_score), strict=True)
        )


def same(one: object, other: object) -> bool:
    """Whether two recorded values are equal, numbers up to rounding."""
    if isinstance(one, float) and isinstance(other, (int, float)):
        return abs(one - other) <= 1e-9
    return one == other


class Judge:
    """Today's scorer, with the settings that each run had.

    Args:
        dump: whose groups are judged.
        workers: answers scored at once.
        timeout: seconds for one answer; None: as the run had it.
    """

    def __init__(self, dump: Dump, workers: int, timeout: float | None = None) -> None:
        self._settings = {run.run_id: settings_of(run.manifest) for run in dump.runs}
        self._defaults = default_settings()
        self._workers = workers
        self._timeout = timeout

    def settings(self, group: GroupRecord) -> RunSettings:
        """The settings of the group's attempt; today's defaults where no manifest tells of it."""
        return self._settings.get(group.run_id, {}).get(group.attempt) or self._defaults

    def knows_settings(self, group: GroupRecord) -> bool:
        """Whether a manifest tells of the group's attempt."""
        return group.attempt in self._settings.get(group.run_id, {})

    def verdict(self, group: GroupRecord, question: Question, rollout: RolloutRecord) -> Verdict:
        """Judge one of the group's responses. Thread-safe.

        Raises:
            ScorerPoolError: the scorer's processes cannot be started.
        """
        config = self.settings(group).config
        timeout = config.scorer.timeout if self._timeout is None else self._timeout
        scorer = shared_scorer(replace(config.scorer, workers=self._workers, timeout=timeout))
        return scorer.judge(question.entry, rollout.response, question.config, config.prefilled_think)
