"""Which rollouts count toward a solve rate.

Invariant: a rollout counts only if it shows whether the policy could solve the question: the response is well-formed
and complete, and its scorer worked. A format violation, a truncation or a scorer failure is not taken for difficulty.
An answer that the guard rejected counts as not solved.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from rg_env.scoring.types import Status, Verdict


class Tally(NamedTuple):
    """The rollouts of a group: how many were solved, of those that count."""

    solved: int
    counted: int


@dataclass(frozen=True, slots=True)
class ObservedGroup:
    """A group of a training batch; `controller_version` is that of its draw (`rg_env.tasks.draw.Draw`)."""

    task: str
    controller_version: int
    tally: Tally


def counts(verdict: Verdict, truncated: bool) -> bool:
    """Whether a rollout counts toward a solve rate.

    Args:
        truncated: whether the response reached the length limit.
    """
    scored = verdict.scored
    worked = scored.status in (Status.OK, Status.REJECTED) and not scored.starved
    return worked and verdict.parsed.violation is None and not truncated


def tally(rollouts: Iterable[tuple[Verdict, bool]], solved_at: float) -> Tally:
    """Count the rollouts of a group, given as for `counts`; one is solved if its base score is at least `solved_at`."""
    solved = [verdict.scored.score >= solved_at for verdict, truncated in rollouts if counts(verdict, truncated)]
    return Tally(sum(solved), len(solved))
