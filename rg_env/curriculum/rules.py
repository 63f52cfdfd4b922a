"""The rules that move the complexity of a task, a number c in [0, 1].

Invariant: a rule is a pure function of the current complexity and of the recent groups. c stays in [0, 1], and never
moves on fewer than `MIN_COUNTED` rollouts that count (`rg_env.curriculum.solve_rate`). The target is a solve rate.

Two rules:

`interval` (default) moves up if the lower bound of a confidence interval of the solve rate is above the target, and
down if the upper bound is below the target − `MARGIN`. Only groups drawn at the current complexity count, so evidence
is collected anew after each move. The rollouts of a group are correlated, because they share a question: 8 solved
rollouts of one question say less about the difficulty of a level than 8 questions, and treating them as independent
would move the level by chance. So the interval is Wilson's with an effective number of rollouts: a group with n counted
rollouts adds n / (1 + (n − 1) · ρ), the design effect of clusters (Kish, Survey Sampling, 1965, ch. 5). The correlation
ρ is a constant, because a few groups are too few to estimate it: groups that are all correct would seem to have none.

`atropos` follows the Reasoning Gym environment of Atropos: from 3 groups on, the mean of the last 5 groups is compared
with the target ± .05. The step is .05 × stability, where stability is 1 − the standard deviation of those groups. If
stability is above .8, the step is .1 × stability where the mean is above .9 and c below .5, or the mean below .3 and c
above .5. There are three differences. The values of groups are solve rates of the rollouts that count, not mean scores;
groups without such rollouts are skipped; and the rule is applied once per observed batch, not once per group, because
the groups of a batch were drawn at the same complexity.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from rg_env.curriculum.solve_rate import Tally, total
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

ATROPOS_MIN_GROUPS, ATROPOS_GROUPS, ATROPOS_DEAD_BAND = 3, 5, 0.05


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a rule based its decision on. The fields are those of `rg_env.dump.LevelRecord`.

    Attributes:
        solve_rate: what the rule compared with the target.
        lower, upper: bounds of its confidence interval; None for `atropos`.
        rollouts, groups: how many rollouts that count, and groups, it was computed from.
        reason: one line.
    """

    solve_rate: float
    lower: float | None
    upper: float | None
    rollouts: int
    groups: int
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of a rule: the change of c (0: stay), and why."""

    change: float
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Move:
    """A change of the complexity of a task.

    Attributes:
        before, after: complexities.
        controller_version: after the move (`rg_env.tasks.draw.Draw`).
    """

    task: str
    before: float
    after: float
    evidence: Evidence
    controller_version: int


def interval(complexity: float, groups: Sequence[Tally], target: float) -> Decision | None:
    """The rule `interval`.

    Args:
        complexity: c, at which all groups were drawn.
        groups: in order of observation.
        target: in (0, 1).

    Returns:
        the decision; None if too few rollouts count.
    """
    groups = [group for group in groups[-RECENT:] if group.counted]
    solved, counted, _ = total(groups)
    if counted < MIN_COUNTED:
        return None
    rate = solved / counted
    effective = sum(group.counted / (1 + (group.counted - 1) * CORRELATION) for group in groups)
    low, high = wilson(rate, effective, NormalDist().inv_cdf((1 + CONFIDENCE) / 2))
    change, why = 0.0, f"within reach of the target {target:g}"
    if low > target:
        change, why = LARGE_STEP if low > EASY else STEP, f"above the target {target:g}"
    elif high < target - MARGIN:
        change, why = -LARGE_STEP if high < HARD else -STEP, f"below the target {target:g} − {MARGIN:g}"
    reason = f"{solved} of {counted} rollouts in {len(groups)} groups solved, interval {low:.2f} to {high:.2f}, {why}"
    return Decision(change, Evidence(rate, low, high, counted, len(groups), reason))


def atropos(complexity: float, groups: Sequence[Tally], target: float) -> Decision | None:
    """The rule `atropos`. Arguments and result as for `interval`, but the groups may be of any complexity."""
    groups = [group for group in groups if group.counted][-ATROPOS_GROUPS:]
    counted = total(groups).counted
    if len(groups) < ATROPOS_MIN_GROUPS or counted < MIN_COUNTED:
        return None
    rates = [group.solved / group.counted for group in groups]
    mean = statistics.fmean(rates)
    stability = 1 - statistics.pstdev(rates)  # at least 0.5, since rates are in [0, 1]
    stable = stability > 0.8
    change = 0.0
    if mean > target + ATROPOS_DEAD_BAND:
        change = STEP
    elif mean < target - ATROPOS_DEAD_BAND:
        change = -STEP
    if mean > EASY and complexity < 0.5 and stable:
        change = LARGE_STEP
    elif mean < HARD and complexity > 0.5 and stable:
        change = -LARGE_STEP
    reason = f"mean {mean:.2f} of the last {len(groups)} groups, target {target:g}, stability {stability:.2f}"
    return Decision(change * stability, Evidence(mean, None, None, counted, len(groups), reason))


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule and how it is applied.

    Attributes:
        decide: the rule.
        restarts: whether only groups drawn since the last move count.
        whole_levels: whether a move continues until the level of at least one attribute changes.
    """

    decide: Callable[[float, Sequence[Tally], float], Decision | None]
    restarts: bool
    whole_levels: bool


RULES: Mapping[str, Rule] = {
    "interval": Rule(interval, restarts=True, whole_levels=True),
    "atropos": Rule(atropos, restarts=False, whole_levels=False),
}
"""By the names of the setting `complexity_rule`."""


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
