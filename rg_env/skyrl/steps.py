"""What is told about a training step: counts over its groups, and the trainer's own numbers.

The counts go to the log and to the screen, the numbers to the step files of the dump.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from skyrl.train.utils.tracking import Tracking

from rg_env.config import RGDumpConfig
from rg_env.dump import DumpWriter, GroupRecord, Outcome, Phase, StepRecord
from rg_env.dump.schema import RG_DUMP, answered, is_equal_partial_credit
from rg_env.scoring.types import Status

_SHOWN = {
    "policy/policy_loss": "loss",
    "policy/policy_kl": "KL",
    "loss/avg_kl": "KL",
    "policy/grad_norm": "gradient norm",
}
"""The trainer's numbers that people are shown, where the algorithm has them."""


@dataclass
class StepSummary:
    """Counts over groups. Rollouts without a response count in `statuses` alone.

    Attributes:
        config: says which rollouts are solved, and from which base score the text of a group is kept as a success.
        rewards, scores: sums over rollouts; `solved`, `well_formed`: numbers of rollouts; `formatted`: of those whose
            environment asks for a format.
        equal_partial: mixed groups in which all rollouts have the same partial credit.
        kinds: training groups by the file for their text, whether or not it is kept.
    """

    config: RGDumpConfig
    groups: int = 0
    rollouts: int = 0
    rewards: float = 0.0
    scores: float = 0.0
    solved: int = 0
    well_formed: int = 0
    formatted: int = 0
    equal_partial: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    tasks: Counter[str] = field(default_factory=Counter)

    def count_groups(self, groups: Iterable[GroupRecord]) -> None:
        """Count groups."""
        for group in groups:
            rollouts = answered(group.rollouts)
            scores = [rollout.base_score for rollout in rollouts]
            self.groups += 1
            self.rollouts += len(rollouts)
            self.rewards += sum(rollout.reward for rollout in rollouts)
            self.scores += sum(rollout.score for rollout in rollouts)
            self.solved += sum(score >= self.config.solved_at for score in scores)
            if group.environment == RG_DUMP:
                self.formatted += len(rollouts)
                self.well_formed += sum(not rollout.violation for rollout in rollouts)
            self.equal_partial += is_equal_partial_credit(scores, self.config.solved_at)
            self.outcomes[group.outcome.value] += 1
            if group.phase is Phase.TRAIN:
                self.kinds[self._kind_of(scores)] += 1
            self.statuses.update(rollout.status.value for rollout in group.rollouts)
            self.violations.update(rollout.violation for rollout in rollouts if rollout.violation)
            self.tasks[group.task] += 1

    def _kind_of(self, base_scores: Sequence[float]) -> str:
        if not base_scores:
            return "without a response"
        if max(base_scores) > self.config.rollout_save_score_threshold:
            return "above the threshold"
        return "other" if any(base_scores) else "all wrong"

    @property
    def every_reward_call_failed(self) -> bool:
        """Whether the user's reward function was called and returned nothing usable for any group."""
        return self.statuses[Status.REWARD_ERROR.value] > 0 and not self.statuses[Status.OK.value]

    @property
    def means(self) -> dict[str, float]:
        """Mean reward, and the shares of solved and of well-formed rollouts; without those that no rollout has."""
        sums = {
            "reward": (self.rewards, self.rollouts),
            "solved": (self.solved, self.rollouts),
            "format": (self.well_formed, self.formatted),
        }
        return {name: total / count for name, (total, count) in sums.items() if count}

    def means_line(self) -> str:
        """The means as text: `reward 0.50 solved 0.25 format 1.00`."""
        return " ".join(f"{name} {mean:.2f}" for name, mean in self.means.items())

    def groups_line(self) -> str:
        """The counts as one line; empty if there was no group."""
        if not self.groups:
            return ""
        equal = f" ({self.equal_partial} unsolved with equal partial credit)" if self.equal_partial else ""
        parts = [
            f"groups: {self.outcomes[Outcome.ALL_CORRECT]} all correct, {self.outcomes[Outcome.MIXED]} mixed{equal}, "
            f"{self.outcomes[Outcome.ALL_FAILED]} all wrong",
            f"mean score {self.scores / self.rollouts:.3f}" if self.rollouts else "mean score none",
        ]
        if self.violations:
            parts.append(f"violations: {_with_counts(self.violations)}")
        parts.append(f"tasks: {_with_counts(self.tasks)}")
        return " | ".join(parts)


def _with_counts(counts: Counter[str]) -> str:
    """Names with their counts, the most frequent first: `gcd 3, lcm 1`."""
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def numbers_line(metrics: Mapping[str, float]) -> str:
    """The trainer's numbers that people are shown: `loss 0.012 KL 0.0031 gradient norm 0.45`."""
    numbers = {name: metrics[key] for key, name in _SHOWN.items() if key in metrics}
    return " ".join(f"{name} {number:.3g}" for name, number in numbers.items())


class StepTracking:
    """A tracker that does what SkyRL's `tracker` does, and records the numbers of each step in the dump.

    SkyRL logs a step in one or several calls, the last of which has `commit=True`; they become one line. The evaluation
    before training is step 0.

    Args:
        writer: of the dump.
    """

    def __init__(self, tracker: Tracking, writer: DumpWriter) -> None:
        self._tracker, self._writer = tracker, writer
        self._step = 0
        self._numbers: dict[str, float] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tracker, name)

    def log(self, data: Mapping[str, Any], step: int, commit: bool = False) -> None:
        """As SkyRL's. Values that are no numbers are not recorded."""
        self._tracker.log(data, step=step, commit=commit)
        if step != self._step:
            self.flush()
        self._step = step
        self._numbers |= {name: number for name, value in data.items() if (number := _as_number(value)) is not None}
        if commit:
            self.flush()

    def finish(self) -> None:
        """As SkyRL's."""
        self.flush()
        self._tracker.finish()

    def flush(self) -> None:
        """Record what has been logged so far."""
        writer, numbers = self._writer, self._numbers
        if numbers and not writer.is_closed:
            self._numbers = {}
            values: list[float | None] = list(numbers.values())
            writer.submit([StepRecord(writer.run_id, writer.attempt, self._step, list(numbers), values)])


def _as_number(value: Any) -> float | None:
    """The value as a float; None if it is no number, or several."""
    if hasattr(value, "item"):  # numpy and torch
        try:
            value = value.item()
        except (ValueError, RuntimeError):  # not exactly one element
            return None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
