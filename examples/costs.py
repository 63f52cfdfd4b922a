"""Reward functions that take something off for what a response costs; docs/your-code.md explains them.

rg-env train configs/quickstart.yaml environment.skyrl_gym.rg_dump.reward=examples.costs.of_tokens
"""

from __future__ import annotations

from collections.abc import Sequence

from rg_env.rewards import Rollout


def of_tokens(rollouts: Sequence[Rollout]) -> list[float]:
    """The base score, less .1 for every 1,000 tokens; what was cut off gets nothing."""
    costs = [0.0001 * (rollout.response_tokens or 0) for rollout in rollouts]
    scores = [rollout.verdict.scored.score if rollout.stopped else 0.0 for rollout in rollouts]
    return [score - cost for score, cost in zip(scores, costs, strict=True)]


def of_time(rollouts: Sequence[Rollout]) -> list[float]:
    """The base score, less up to .2 for a response that took longer than the fastest of its group."""
    seconds = [rollout.seconds or 0.0 for rollout in rollouts]
    costs = [0.2 * (1 - min(seconds) / taken) if taken else 0.0 for taken in seconds]
    return [rollout.verdict.scored.score - cost for rollout, cost in zip(rollouts, costs, strict=True)]
