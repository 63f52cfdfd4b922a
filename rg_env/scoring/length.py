"""Length penalties: rules by which long responses get less. Pure functions of one group.

Invariant: a rule lowers a score by a factor in [0, 1], or adds to the reward alone. So no rule raises a score or turns
a solved group into a failed one. In the formulas, L is a response's length and M the limit, both in response tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rg_env.base.errors import need_number
from rg_env.configuration.config import LengthPenaltyConfig
from rg_env.configuration.settings import check_fields


class ScoredGroup(NamedTuple):
    """The rollouts of a prompt: base scores in [0, 1], response tokens, and whether each counts as solved."""

    scores: Sequence[float]
    lengths: Sequence[int]
    solved: Sequence[bool]


@dataclass(frozen=True, slots=True)
class Penalty:
    """The effect of a rule on one group, in the order of its rollouts.

    Attributes:
        factors: score = base score × factor, in [0, 1].
        additions: added to the reward that follows from the score; usually negative, with Kimi's rule also positive.
    """

    factors: list[float]
    additions: list[float]


def atropos(group: ScoredGroup, limit: int, settings: LengthPenaltyConfig) -> Penalty:
    """Score × (1 − clip((L − tM) / (M − tM), 0, 1)) if every base score is at least `correct_at`; t is `threshold`.

    Source: the reasoning_gym environment of Atropos (Nous Research), with t = 0.75.

    >>> atropos(ScoredGroup([1.0, 0.5], [900, 750], [True, False]), 1000, LengthPenaltyConfig()).factors
    [0.4, 1.0]
    """
    factors = [1.0] * len(group.scores)
    if all(score >= settings.correct_at for score in group.scores):
        free = settings.threshold * limit
        factors = [1.0 - min(1.0, max(0.0, (length - free) / (limit - free))) for length in group.lengths]
    return Penalty(factors, [0.0] * len(factors))


def dapo(group: ScoredGroup, limit: int, settings: LengthPenaltyConfig) -> Penalty:
    """Soft overlong punishment, added to the reward: 0 up to M − `buffer`, then linear down to −`weight` at M.

    Source: Yu et al., "DAPO: An Open-Source LLM Reinforcement Learning System at Scale", 2025, equation 13.

    >>> dapo(ScoredGroup([1.0] * 3, [750, 900, 1200], [True] * 3), 1000, LengthPenaltyConfig(buffer=200)).additions
    [0.0, -0.5, -1.0]
    """
    buffer = settings.buffer or max(1, limit // 4)
    overlong = [min(1.0, max(0, length - (limit - buffer)) / buffer) for length in group.lengths]
    return Penalty([1.0] * len(overlong), [0.0 - settings.weight * share for share in overlong])  # never −0.0


def kimi(group: ScoredGroup, limit: int, settings: LengthPenaltyConfig) -> Penalty:
    """Added to the reward: `weight` · λ if solved, min(0, `weight` · λ) if not, where λ = ½ − (L − min)/(max − min).

    Source: Kimi Team, "Kimi k1.5: Scaling Reinforcement Learning with LLMs", 2025, section 2.3.3. The paper turns the
    rule on only after some training. λ is 0 where all responses are of one length.

    >>> kimi(ScoredGroup([1.0, 1.0, 0.0], [100, 300, 100], [True, True, False]), 1000, LengthPenaltyConfig()).additions
    [0.5, -0.5, 0.0]
    """
    low, high = min(group.lengths, default=0), max(group.lengths, default=0)
    shares = [0.5 - (length - low) / (high - low) if high > low else 0.0 for length in group.lengths]
    # A short wrong answer gets no bonus.
    shares = [share if solved else min(0.0, share) for share, solved in zip(shares, group.solved, strict=True)]
    return Penalty([1.0] * len(shares), [settings.weight * share for share in shares])


def none(group: ScoredGroup, limit: int, settings: LengthPenaltyConfig) -> Penalty:
    """No penalty."""
    return Penalty([1.0] * len(group.scores), [0.0] * len(group.scores))


# To add one: a function with formula, source and a runnable example in its docstring, whose first line is its effect in
# docs/rewards.md, and its name here and in `choices`. A setting of its own is a field of `LengthPenaltyConfig`, whose
# meaning begins with the names of the penalties that read it. A penalty that adds to the reward needs its range in
# `test_factors_and_additions_keep_their_ranges`; all need a test of their values.
LENGTH_PENALTIES = {rule.__name__: rule for rule in (atropos, dapo, kimi, none)}


def group_penalty(settings: LengthPenaltyConfig, group: ScoredGroup, max_length: int) -> Penalty:
    """Apply the rule of the settings; `max_length` is the limit where they have none."""
    return LENGTH_PENALTIES[settings.kind](group, settings.max_length or max_length, settings)


def length_penalty(
    scores: Sequence[float],
    lengths: Sequence[int],
    *,
    max_length: int,
    threshold: float = 0.75,
    correct_at: float = 0.5,
) -> list[float]:
    """Return the scores of a group after the Atropos rule.

    Args:
        max_length: M, in tokens, above 0.
        threshold: in [0, 1).

    Raises:
        ConfigError: `max_length` or `threshold` is out of range.

    >>> length_penalty([1.0, 1.0, 1.0], [700, 875, 1000], max_length=1000)
    [1.0, 0.5, 0.0]
    >>> length_penalty([1.0, 0.0], [700, 1000], max_length=1000)  # not all correct: unchanged
    [1.0, 0.0]
    """
    need_number("max_length", max_length, above=0)
    settings = LengthPenaltyConfig(threshold=threshold, correct_at=correct_at)
    check_fields(settings, "length_penalty")
    factors = atropos(ScoredGroup(scores, lengths, ()), max_length, settings).factors
    return [score * factor for score, factor in zip(scores, factors, strict=True)]
