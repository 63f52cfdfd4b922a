"""What a training step's groups were like: counts, and one line for the log. Pure: no files, no SkyRL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rg_env.dump.routing import DumpPolicy, route
from rg_env.dump.schema import RG_DUMP, GroupRecord, Outcome, answered, is_equal_partial_credit
from rg_env.scoring.types import Status

NO_TEXT = "ledger only"
"""Where a group is whose text is not kept."""


@dataclass
class StepCounts:
    """Counts over groups. Rollouts without a response count in `statuses` alone.

    Attributes:
        rewards, scores: sums over rollouts; `solved`, `well_formed`: numbers of rollouts; `formatted`: of those whose
            environment asks for a format.
        equal_partial: mixed groups in which all rollouts have the same partial credit.
        files: groups by the file that has their text (`FileKind`, or NO_TEXT).
    """

    groups: int = 0
    rollouts: int = 0
    rewards: float = 0.0
    scores: float = 0.0
    solved: int = 0
    well_formed: int = 0
    formatted: int = 0
    equal_partial: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    files: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    tasks: Counter[str] = field(default_factory=Counter)

    def as_facts(self) -> dict[str, Any]:
        """For a report (`rg_env.terminal.reports`)."""
        return vars(self).copy()

    def line(self) -> str:
        """The counts as one line; empty if there was no group."""
        if not self.groups:
            return ""
        equal = f" ({self.equal_partial} all wrong with equal partial credit)" if self.equal_partial else ""
        outcomes = (
            f"{self.outcomes[Outcome.ALL_CORRECT]} all correct, {self.outcomes[Outcome.MIXED]} mixed{equal}, "
            f"{self.outcomes[Outcome.ALL_FAILED]} all wrong"
        )
        mean = f"{self.scores / self.rollouts:.3f}" if self.rollouts else "none"
        parts = [f"groups: {outcomes}", f"mean score {mean}"]
        if self.violations:
            parts.append(f"violations: {_with_counts(self.violations)}")
        parts.append(f"tasks: {_with_counts(self.tasks)}")
        return " | ".join(parts)


class StepSummary:
    """Counts over the groups since the last `take`.

    Args:
        solved_at: a rollout with at least this base score is correct.
        policy: decides which file has the text of a group.
    """

    def __init__(self, solved_at: float, policy: DumpPolicy | None = None) -> None:
        self._solved_at = solved_at
        self._policy = policy or DumpPolicy()
        self._counts = StepCounts()

    def add(self, groups: Iterable[GroupRecord]) -> None:
        """Count groups."""
        counts = self._counts
        for group in groups:
            rollouts = answered(group.rollouts)
            counts.groups += 1
            counts.rollouts += len(rollouts)
            counts.rewards += sum(one.reward for one in rollouts)
            counts.scores += sum(one.score for one in rollouts)
            counts.solved += sum(one.base_score >= self._solved_at for one in rollouts)
            if group.environment == RG_DUMP:
                counts.formatted += len(rollouts)
                counts.well_formed += sum(not one.violation for one in rollouts)
            counts.equal_partial += is_equal_partial_credit([one.base_score for one in rollouts], self._solved_at)
            counts.outcomes[group.outcome.value] += 1
            counts.files[route(group, self._policy)[0] or NO_TEXT] += 1
            counts.statuses.update(one.status.value for one in group.rollouts)
            counts.violations.update(one.violation for one in rollouts if one.violation)
            counts.tasks[group.task] += 1

    @property
    def every_reward_call_failed(self) -> bool:
        """Whether the user's reward function was called and returned nothing usable for any group."""
        statuses = self._counts.statuses
        return statuses[Status.REWARD_ERROR.value] > 0 and not statuses[Status.OK.value]

    def take(self) -> StepCounts:
        """The counts, which start again at 0."""
        taken, self._counts = self._counts, StepCounts()
        return taken


def _with_counts(counts: Counter[str]) -> str:
    """Names with their counts, the most frequent first: `gcd 3, lcm 1`."""
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])))
