"""Your own reward function, advantage estimator, policy loss and experiment; docs/your-code.md explains them.

rg-env train configs/quickstart.yaml examples/my_code.yaml
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from loguru import logger
from skyrl.backends.skyrl_train.utils.ppo_utils import register_advantage_estimator, register_policy_loss

from rg_env.rollouts.rewards import Rollout
from rg_env.skyrl.experiment import RGExperiment


# -- a reward function
def brief(rollouts: Sequence[Rollout]) -> list[float]:
    """The base score, and a little for a response that has the format and thinks briefly."""
    thoughts = [rollout.verdict.parsed.think for rollout in rollouts]
    bonuses = [0.1 / (1 + len(thought)) if thought is not None else 0.0 for thought in thoughts]
    return [rollout.verdict.scored.score + bonus for rollout, bonus in zip(rollouts, bonuses, strict=True)]


# -- an advantage estimator
@register_advantage_estimator("best_of_group")
def best_of_group(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: Any, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Only a response that is better than its group's mean is reinforced."""
    scores = token_level_rewards.sum(dim=-1)
    means = {uid: scores[[i for i, other in enumerate(index) if other == uid]].mean() for uid in set(index)}
    advantages = torch.stack([(scores[i] - means[uid]).clamp(min=0) for i, uid in enumerate(index)])
    spread = advantages.unsqueeze(-1) * response_mask
    return spread, spread


# -- a policy loss
@register_policy_loss("plain")
def plain(
    log_probs: torch.Tensor,
    old_log_probs: torch.Tensor,
    advantages: torch.Tensor,
    config: Any,
    loss_mask: torch.Tensor | None = None,
    rollout_logprobs: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, float]]:
    """REINFORCE without clipping. SkyRL has already divided the advantages, so the loss is a sum."""
    loss = -(advantages * log_probs)
    return (loss if loss_mask is None else loss * loss_mask).sum(), {"clip_ratio": 0.0}


# -- an experiment
class MyExperiment(RGExperiment):
    """Any method of rg_env's and SkyRL's experiments can be replaced."""

    def get_train_dataset(self) -> Any:
        dataset = super().get_train_dataset()
        logger.info("training on {} rows", len(dataset))
        return dataset
