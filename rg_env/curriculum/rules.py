"""The rule that moves the complexity of a task, a number c in [0, 1].

Invariant: pure functions of the current complexity and of the recent groups. c stays in [0, 1], and never moves on
fewer than `MIN_COUNTED` rollouts that count (`rg_env.curriculum.solve_rate`). The target is a solve rate.

c moves up if the lower bound of a confidence interval of the solve rate is above the target, and down if the upper
bound is below the target − `MARGIN`. The rollouts of a group are correlated, because they share a question: 8 solved
rollouts of one question say less about the difficulty of a level than 8 questions, and treating them as independent
would move the level by chance. So the interval is Wilson's with an effective number of rollouts: a group with n counted
rollouts adds n / (1 + (n − 1) · ρ), the design effect of clusters (Kish, Survey Sampling, 1965, ch. 5). The correlation
ρ is a constant, because a few groups are too few to estimate it: groups that are all correct would seem to have none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from rg_env.curriculum.solve_rate import Tally
from rg_env.wilson import wilson

START = 0.3
"""Complexity of a task before any move, as in Atropos."""
MIN_COUNTED = 8
"""Fewer rollouts that count never move a level: one group of the usual size."""
RECENT = 16
"""Groups that a solve rate is computed from. Older ones are of an older policy."""

STEP, LARGE_STEP = 0.05, 0.1
"""As in Atropos; the large step is for a policy that is far from the target."""
EASY, HARD = 0.9, 0.3
"""Solve rates beyond which a policy is far from the target, as in Atropos."""

CONFIDENCE = 0.9
"""Two-sided, so each bound is wrong in about 5 % of looks. In simulations with correlations from 0 to .7, a policy
exactly at the target .7 caused at most 2 moves per 100 groups, and one that solves 95 % moved up after 4 to 8."""
CORRELATION = 0.5
"""ρ. Two recorded quickstart runs have .29 to .70, on average .50, for each task in each of three parts of the run."""
MARGIN = 0.1
"""The level goes down only this far below the target, so that it does not swing between two neighboring levels."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the rule based its decision on. The fields are those of `rg_env.dump.LevelRecord`.

    Attributes:
        solve_rate: what the rule compared with the target.
        lower, upper: bounds of its confidence interval.
        rollouts, groups: how many rollouts that count, and groups, it was computed from.
        reason: one line.
    """

    solve_rate: float
    lower: float
    upper: float
    rollouts: int
    groups: int
    reason: str


@dataclass(frozen=True, slots=True)
class Move:
    """A change of the complexity of a task.

    Attributes:
        before, after: complexities.
    """

    task: str
    before: float
    after: float
    evidence: Evidence


def interval(groups: Sequence[Tally], target: float) -> tuple[float, Evidence | None]:
    """Whether a level is to move.

    Args:
        groups: of the current complexity, in order of observation.
        target: in (0, 1).

    Returns:
        the change of c (0: stay), and why; None if too few rollouts count.
    """
    groups = [group for group in groups[-RECENT:] if group.counted]
    solved, counted = (sum(numbers) for numbers in zip(Tally(0, 0), *groups, strict=True))
    if counted < MIN_COUNTED:
        return 0.0, None
    rate = solved / counted
    effective = sum(group.counted / (1 + (group.counted - 1) * CORRELATION) for group in groups)
    low, high = wilson(rate, effective, NormalDist().inv_cdf((1 + CONFIDENCE) / 2))
    change, why = 0.0, f"within reach of the target {target:g}"
    if low > target:
        change, why = LARGE_STEP if low > EASY else STEP, f"above the target {target:g}"
    elif high < target - MARGIN:
        change, why = -LARGE_STEP if high < HARD else -STEP, f"below the target {target:g} − {MARGIN:g}"
    reason = f"{solved} of {counted} rollouts in {len(groups)} groups solved, interval {low:.2f} to {high:.2f}, {why}"
    return change, Evidence(rate, low, high, counted, len(groups), reason)


def moved(complexity: float, change: float) -> float:
    """The complexity after a change, in [0, 1], rounded to 4 decimals."""
    return round(min(1.0, max(0.0, complexity + change)), 4)


def next_level(complexity: float, change: float, level: Callable[[float], object]) -> float:
    """The complexity after as many changes as it takes to change the level.

    Args:
        level: complexity → level.

    Returns:
        the complexity; the given one if there is no other level in this direction.
    """
    after, here = complexity, level(complexity)
    while (further := moved(after, change)) != after:
        after = further
        if level(after) != here:
            return after
    return complexity
