"""Scores a recorded response again from what its line contains: the item, the task's options, the text.

Invariant: the recorded verdict does not affect the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

from rg_env.dump import Dump, GroupRecord, RolloutRecord
from rg_env.dump.run_settings import RunSettings, default_settings, settings_of_attempts
from rg_env.scoring import Status, Verdict, Violation, parse_response, shared_scorer
from rg_env.tasks.entry_json import decode_entry


@dataclass(frozen=True, slots=True)
class Question:
    """The question that a response answers.

    Attributes:
        entry: Reasoning Gym's entry.
        config: the task's options; None if all have their defaults.
    """

    entry: Mapping[str, Any]
    config: Mapping[str, Any] | None

    @classmethod
    def of(cls, group: GroupRecord) -> Question | None:
        """The group's question; None if its line does not contain it, as in Atropos' files."""
        try:
            entry, config = decode_entry(group.entry), decode_entry(group.task_config)
            known = isinstance(entry["metadata"]["source_dataset"], str) and isinstance(config, Mapping)
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        return cls(entry, config or None) if known else None


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of a recorded rollout or of a new verdict, to compare them."""

    violation: Violation | None
    status: Status
    raw_score: float | None
    tagged_score: float | None
    base_score: float

    @classmethod
    def of(cls, judged: RolloutRecord | Verdict) -> Scores:
        if isinstance(judged, Verdict):
            scored = judged.scored
            return cls(judged.parsed.violation, scored.status, scored.raw, scored.tagged, scored.score)
        return cls(judged.violation, judged.status, judged.raw_score, judged.tagged_score, judged.base_score)

    def equals(self, other: Scores) -> bool:
        """Whether all values are equal, numbers up to rounding."""
        return all(map(same, astuple(self), astuple(other)))


def same(one: object, other: object) -> bool:
    """Whether two values of a record are equal, numbers up to rounding."""
    if isinstance(one, float) and isinstance(other, (int, float)):
        return abs(one - other) <= 1e-9
    return one == other


class Judge:
    """The current scorer with the settings of each run.

    Args:
        dump: contains the groups to be judged.
        workers: number of answers scored at the same time.
        timeout: seconds per answer; None: as in the run.
    """

    def __init__(self, dump: Dump, workers: int, timeout: float | None = None) -> None:
        self._settings = settings_of_attempts(dump.runs)
        self._defaults = default_settings()
        self._workers = workers
        self._timeout = timeout

    def settings(self, group: GroupRecord) -> RunSettings:
        """The settings of the group's attempt; the current defaults if no manifest has them."""
        return self._settings.get((group.run_id, group.attempt), self._defaults)

    def knows_settings(self, group: GroupRecord) -> bool:
        """Whether a manifest has the settings of the group's attempt."""
        return (group.run_id, group.attempt) in self._settings

    def verdict(self, group: GroupRecord, question: Question, rollout: RolloutRecord) -> Verdict:
        """Judge one of the group's responses. Thread-safe. No response and an unscorable one remain what they are.

        Raises:
            ScorerPoolError: the scorer's processes cannot be started.
        """
        if rollout.status is Status.NO_RESPONSE:
            return Verdict.no_response(rollout.detail)
        config = self.settings(group).config
        if rollout.status is Status.UNSCORABLE:
            parsed = parse_response(rollout.response, config.prefilled_think, format=config.format)
            return Verdict.unscorable(parsed, rollout.detail)
        timeout = config.scorer.timeout if self._timeout is None else self._timeout
        settings = replace(config.scorer, workers=self._workers, timeout=timeout)
        scorer = shared_scorer(settings)
        return scorer.judge(question.entry, rollout.response, question.config, config.prefilled_think, config.format)
