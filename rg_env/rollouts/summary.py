"""What a training step's groups were like, as one line for the log. Pure: no files, no SkyRL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rg_env.dump.schema import GroupRecord, Outcome, answered, is_equal_partial_credit


class StepSummary:
    """Counts over the groups since the last `take`.

    Args:
        solved_at: a rollout with at least this base score is correct.
    """

    def __init__(self, solved_at: float) -> None:
        self._solved_at = solved_at
        self.drawn: Counter[str] = Counter()
        """Groups of each task since the start."""
        self._reset()

    def _reset(self) -> None:
        self._outcomes: Counter[str] = Counter()
        self._equal_partial = 0
        self._scores: list[float] = []
        self._violations: Counter[str] = Counter()
        self._tasks: Counter[str] = Counter()

    def add(self, groups: Iterable[GroupRecord]) -> None:
        """Count groups."""
        for group in groups:
            rollouts = answered(group.rollouts)
            self._outcomes[group.outcome] += 1
            self._equal_partial += is_equal_partial_credit([one.base_score for one in rollouts], self._solved_at)
            self._scores += [one.score for one in rollouts]
            self._violations.update(one.violation.value for one in rollouts if one.violation)
            self._tasks[group.task] += 1
            self.drawn[group.task] += 1

    def take(self) -> str:
        """The counts as one line, then start again at 0; empty if there was no group."""
        if not self._tasks:
            return ""
        equal = f" ({self._equal_partial} all wrong with equal partial credit)" if self._equal_partial else ""
        outcomes = (
            f"{self._outcomes[Outcome.ALL_CORRECT]} all correct, {self._outcomes[Outcome.MIXED]} mixed{equal}, "
            f"{self._outcomes[Outcome.ALL_FAILED]} all wrong"
        )
        mean = f"{sum(self._scores) / len(self._scores):.3f}" if self._scores else "none"
        parts = [f"groups: {outcomes}", f"mean score {mean}"]
        if self._violations:
            parts.append(f"violations: {counted(self._violations)}")
        parts.append(f"tasks: {counted(self._tasks)}")
        self._reset()
        return " | ".join(parts)


def counted(counts: Counter[str]) -> str:
    """Names with their counts, the most frequent first: `gcd 3, lcm 1`."""
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])))
