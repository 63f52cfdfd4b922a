"""Which rollouts count toward a solve rate.

Invariant: a rollout counts only if it shows whether the policy could solve the question: the response is well-formed
and complete, and its scorer worked. A format violation, a truncation or a scorer failure is not taken for difficulty.
An answer that the guard rejected counts as not solved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rg_env.scoring.types import Status, Verdict


@dataclass(frozen=True, slots=True)
class RolloutFacts:
    """What a solve rate depends on.

    Attributes:
        base_score: in [0, 1].
        scorer_ok: False if there was no response, or its scorer failed or got no CPU time.
        truncated: True if the response reached the length limit.
    """

    base_score: float
    well_formed: bool
    scorer_ok: bool
    truncated: bool

    @classmethod
    def of(cls, verdict: Verdict, truncated: bool) -> RolloutFacts:
        """The facts of a rollout from its verdict."""
        scored = verdict.scored
        worked = scored.status in (Status.OK, Status.REJECTED) and not scored.starved
        return cls(scored.score, verdict.parsed.violation is None, worked, truncated)

    @property
    def counts(self) -> bool:
        """Whether the rollout counts toward a solve rate."""
        return self.well_formed and self.scorer_ok and not self.truncated


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group of a training batch.

    Attributes:
        complexity, controller_version: those of its draw (`rg_env.tasks.draw.Draw`).
    """

    task: str
    complexity: float | None
    controller_version: int
    rollouts: Sequence[RolloutFacts]


class Tally(NamedTuple):
    """The rollouts of a group: how many were solved, how many counted, and how many there were."""

    solved: int
    counted: int
    rollouts: int


def tally(group: GroupFacts, solved_at: float) -> Tally:
    """Count the rollouts of a group; one is solved if its base score is at least `solved_at`."""
    counted = [rollout for rollout in group.rollouts if rollout.counts]
    return Tally(sum(rollout.base_score >= solved_at for rollout in counted), len(counted), len(group.rollouts))


def total(tallies: Iterable[Tally]) -> Tally:
    """The sum over groups."""
    return Tally(*map(sum, zip(Tally(0, 0, 0), *tallies, strict=True)))
