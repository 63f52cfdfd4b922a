"""What the cheap policies of `rg_env.audit.policies` earn, with reasoning-gym's scorer and with ours.

Invariant: policies are selected and measured on different items, so selection does not bias the means. Each mean is
reported with the class prior: the largest share of items on which a constant, or a frequent answer of other items, is
fully correct. No scorer can prevent the class prior; what a policy earns above it is a free reward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rg_env.audit.policies import Family, Policy, policies_for
from rg_env.audit.sides import Ending, Side
from rg_env.scoring.guard import EVALUATING_TASKS

FREE_MARGIN = 0.2
"""A policy whose mean score exceeds the class prior by more than this is a hole."""
_KEPT = 8
"""Number of policies measured on each side, and again of those that do not read the question."""
_BLIND = frozenset({Family.CONSTANT, Family.MAJORITY})
_FULLY_RIGHT = 1 - 1e-9

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Income:
    """What a policy earns on one side.

    Attributes:
        mean: mean score over all items, in [0, 1].
        right: share of items on which its answer is fully correct.
    """

    policy: str
    family: str
    mean: float
    right: float


@dataclass(frozen=True, slots=True)
class FreeReward:
    """The best policies of a task.

    Attributes:
        items: number of items that they are measured on.
        class_prior: as above, by our scorer.
        raw, ours: the best policy with reasoning-gym's scorer and with ours; None if none earns anything.
    """

    items: int
    class_prior: float
    raw: Income | None
    ours: Income | None

    @property
    def excess(self) -> float:
        """What the best policy earns with our scorer beyond the class prior, at least 0."""
        return max(0.0, self.ours.mean - self.class_prior) if self.ours is not None else 0.0


def free_reward(task: str, entries: Sequence[Entry], raw: Side, ours: Side) -> FreeReward:
    """Select the best policies on the first items and measure them on the others.

    Args:
        entries: items of the task, at least 2. At most a fifth of them, up to 8, are used for the selection; up to 3 if
            each answer needs its own process. The majority policies know their correct answers.
        raw, ours: both sides, started for the task.
    """
    screened = max(1, min(3 if task in EVALUATING_TASKS else 8, len(entries) // 5))
    known, asked = entries[:screened], entries[screened:]
    policies = policies_for(task, [str(entry["answer"]) for entry in known if entry["answer"] is not None])
    on_raw, on_ours = (
        [_income(side, policy, asked) for policy in _chosen(side, policies, known)] for side in (raw, ours)
    )
    prior = max((income.right for income in on_ours if income.family in _BLIND), default=0.0)
    return FreeReward(len(asked), prior, _best(on_raw), _best(on_ours))


def _chosen(side: Side, policies: Sequence[Policy], entries: Sequence[Entry]) -> list[Policy]:
    """The most promising policies, and the most promising of those that do not read the question."""
    ranked = sorted(policies, key=lambda policy: -_income(side, policy, entries).mean)
    blind = [policy for policy in ranked if policy.family in _BLIND]
    return [policy for policy in ranked if policy in ranked[:_KEPT] or policy in blind[:_KEPT]]


def _best(incomes: Sequence[Income]) -> Income | None:
    best = max(incomes, key=lambda income: income.mean)
    return best if best.mean > 0 else None


def _income(side: Side, policy: Policy, entries: Sequence[Entry]) -> Income:
    scores = [_score(side, policy, entry) for entry in entries]
    right = sum(score >= _FULLY_RIGHT for score in scores)
    return Income(policy.name, policy.family.value, sum(scores) / len(scores), right / len(scores))


def _score(side: Side, policy: Policy, entry: Entry) -> float:
    answer = policy.answer(entry)
    outcome = side.ask(entry, answer) if answer is not None else None
    return outcome.score if outcome is not None and outcome.ending is Ending.SCORED else 0.0
