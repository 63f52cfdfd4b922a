"""Length penalties: rules by which long responses score less. Pure functions of one group; lengths in response tokens.

Invariant: a rule changes the score only by a factor in [0, 1], and the reward only by an addition to it, so no rule
raises a score or turns a solved group into a failed one. The limits of the settings are checked in `rg_env.config`. A
rule is one entry of `LENGTH_PENALTIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Penalty:
    """The effect of a rule on one group, in the order of its rollouts.

    Attributes:
        factors: score = base score × factor, in [0, 1].
        additions: added to the reward that follows from the score; usually negative, with Kimi's rule also positive.
    """

    factors: list[float]
    additions: list[float]


def group_penalty(
    settings: Any, scores: Sequence[float], lengths: Sequence[int], correct: Sequence[bool], max_length: int
) -> Penalty:
    """Apply the configured rule to one group.

    Args:
        settings: a validated `LengthPenaltyConfig`. If it has no `max_length`, the argument below is used; if it has no
            `buffer`, a quarter of the limit.
        scores: base scores, in [0, 1].
        lengths: response tokens, at least 0.
        correct: whether each rollout counts as solved (for Kimi's rule).
        max_length: the longest response that the engine generates, in tokens.
    """
    limit = max_length if settings.max_length is None else settings.max_length
    return LENGTH_PENALTIES[settings.kind].apply(settings, scores, lengths, correct, limit)


def length_penalty(
    scores: Sequence[float],
    lengths: Sequence[int],
    *,
    max_length: int,
    threshold: float = 0.75,
    correct_at: float = 0.5,
) -> list[float]:
    """The Atropos rule: score × `atropos_factors`.

    >>> length_penalty([1.0, 1.0, 1.0], [700, 875, 1000], max_length=1000)
    [1.0, 0.5, 0.0]
    >>> length_penalty([1.0, 0.0], [700, 1000], max_length=1000)  # not all correct: unchanged
    [1.0, 0.0]
    """
    factors = atropos_factors(scores, lengths, max_length=max_length, threshold=threshold, correct_at=correct_at)
    return [score * factor for score, factor in zip(scores, factors, strict=True)]


def atropos_factors(
    scores: Sequence[float],
    lengths: Sequence[int],
    *,
    max_length: int,
    threshold: float = 0.75,
    correct_at: float = 0.5,
) -> list[float]:
    """In a group of correct responses, long ones score less: factor = 1 − clip((L − t·M) / ((1 − t)·M), 0, 1).

    If any score in the group is below `correct_at`, all factors are 1. L is the length of a response, M is
    `max_length`, t is `threshold`. Source: the reasoning_gym environment of Atropos (Nous Research), with t = 0.75.

    Args:
        scores: in [0, 1].
        lengths: response tokens, at least 0.
        max_length: length in tokens at which the factor is 0, at least 1.
        threshold: share of `max_length` up to which the factor is 1, in [0, 1).
        correct_at: in [0, 1].

    >>> atropos_factors([1.0, 0.5], [900, 750], max_length=1000)
    [0.4, 1.0]
    """
    if any(score < correct_at for score in scores):
        return [1.0] * len(scores)
    free = threshold * max_length
    return [1.0 - min(1.0, max(0.0, (length - free) / (max_length - free))) for length in lengths]


def dapo_additions(lengths: Sequence[int], *, max_length: int, buffer: int) -> list[float]:
    """Soft overlong punishment: 0 up to M − B, then ((M − B) − L) / B, and −1 beyond M.

    L is the length of a response, M is `max_length`, B is `buffer`. Source: Yu et al., "DAPO: An Open-Source LLM
    Reinforcement Learning System at Scale", 2025, equation 13.

    Args:
        lengths: response tokens, at least 0.
        max_length: in tokens, at least 1.
        buffer: width of the soft zone in tokens, from 1 to `max_length`.

    Returns:
        Additions to the reward, in [−1, 0].

    >>> dapo_additions([750, 900, 1000, 1200], max_length=1000, buffer=200)
    [0.0, -0.5, -1.0, -1.0]
    """
    overlong = [max(0, length - (max_length - buffer)) for length in lengths]
    return [0.0 - min(1.0, tokens / buffer) for tokens in overlong]  # 0.0 − x, for −x would give −0.0


def kimi_additions(lengths: Sequence[int], correct: Sequence[bool]) -> list[float]:
    """Short correct responses get more, long ones less: λ = 0.5 − (L − min) / (max − min); if wrong, min(0, λ).

    min and max are the group's; if they are equal, all additions are 0. Source: Kimi Team, "Kimi k1.5: Scaling
    Reinforcement Learning with LLMs", 2025, section 2.3.3. The paper turns the rule on only after some training.

    Args:
        lengths: response tokens, at least 0.
        correct: whether each response is correct.

    Returns:
        Additions to the reward, in [−0.5, 0.5].

    >>> kimi_additions([100, 200, 300, 100], [True, True, True, False])
    [0.5, 0.0, -0.5, 0.0]
    """
    if not lengths or min(lengths) == max(lengths):
        return [0.0] * len(lengths)
    low, high = min(lengths), max(lengths)
    shares = [0.5 - (length - low) / (high - low) for length in lengths]
    return [share if right else min(0.0, share) for share, right in zip(shares, correct, strict=True)]


def _atropos(
    settings: Any, scores: Sequence[float], lengths: Sequence[int], correct: Sequence[bool], limit: int
) -> Penalty:
    threshold, correct_at = settings.threshold, settings.correct_at
    factors = atropos_factors(scores, lengths, max_length=limit, threshold=threshold, correct_at=correct_at)
    return Penalty(factors, [0.0] * len(scores))


def _dapo(
    settings: Any, scores: Sequence[float], lengths: Sequence[int], correct: Sequence[bool], limit: int
) -> Penalty:
    buffer = max(1, limit // 4) if settings.buffer is None else settings.buffer
    return _added(settings, dapo_additions(lengths, max_length=limit, buffer=buffer))


def _kimi(
    settings: Any, scores: Sequence[float], lengths: Sequence[int], correct: Sequence[bool], limit: int
) -> Penalty:
    return _added(settings, kimi_additions(lengths, correct))


def _none(
    settings: Any, scores: Sequence[float], lengths: Sequence[int], correct: Sequence[bool], limit: int
) -> Penalty:
    return Penalty([1.0] * len(scores), [0.0] * len(scores))


def _added(settings: Any, additions: Sequence[float]) -> Penalty:
    return Penalty([1.0] * len(additions), [settings.weight * addition for addition in additions])


@dataclass(frozen=True, slots=True)
class LengthPenalty:
    """A rule that `length_penalty.kind` can name.

    Attributes:
        effect: the formula, for people.
        apply: from the settings, the group's scores, lengths and whether they are correct, and the limit in tokens.
        settings: those under `length_penalty` that it reads.
    """

    effect: str
    apply: Callable[[Any, Sequence[float], Sequence[int], Sequence[bool], int], Penalty]
    settings: tuple[str, ...] = ()


LENGTH_PENALTIES = {
    "atropos": LengthPenalty(
        "if every base score of the group is at least `correct_at`: score × (1 − clip((L − t·M) / ((1 − t)·M), 0, 1)), "
        "where L is the response length, t = `threshold` and M = `max_length`",
        _atropos,
        ("max_length", "threshold", "correct_at"),
    ),
    "dapo": LengthPenalty(
        "soft overlong punishment, added to the reward: 0 up to M − `buffer`, then linear down to −1 at M = "
        "`max_length`, times `weight`",
        _dapo,
        ("max_length", "buffer", "weight"),
    ),
    "kimi": LengthPenalty(
        "length reward of Kimi k1.5, added to the reward: λ = ½ − (L − min)/(max − min) if correct, min(0, λ) if "
        "wrong, times `weight`",
        _kimi,
        ("weight",),
    ),
    "none": LengthPenalty("no penalty", _none),
}
"""The rules, by name."""
