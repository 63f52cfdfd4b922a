"""Reward functions that take something off for what a response costs; docs/your-code.md explains them.

rg-env train configs/quickstart.yaml environment.skyrl_gym.rg_dump.reward=examples.costs.of_tokens
"""

from __future__ import annotations

from collections.abc import Sequence

from rg_env.rollouts.rewards import Rollout


def of_tokens(rollouts: Sequence[Rollout]) -> list[float]:
    """The base score, less a tenth of it for every 1,000 tokens; what was cut off gets nothing."""
    costs = [0.0001 * (rollout.response_tokens or 0) for rollout in rollouts]
    scores = [rollout.verdict.scored.score if rollout.stopped else 0.0 for rollout in rollouts]
    # A wrong answer costs nothing: where all are wrong, the cost alone would teach the model to say nothing.
    return [score * (1 - min(cost, 1.0)) for score, cost in zip(scores, costs, strict=True)]


def of_time(rollouts: Sequence[Rollout]) -> list[float]:
    """The base score, less up to a fifth of it for a response that took longer than the fastest of its group."""
    seconds = [rollout.seconds or 0.0 for rollout in rollouts]
    costs = [0.2 * (1 - min(seconds) / taken) if taken else 0.0 for taken in seconds]
    return [rollout.verdict.scored.score * (1 - cost) for rollout, cost in zip(rollouts, costs, strict=True)]
