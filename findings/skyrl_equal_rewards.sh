#!/usr/bin/env bash
# SkyRL 0.4.0 gives a group of equal rewards an advantage that is not 0.
#
# The usual guess: GRPO compares a reward with the mean of its group, so eight times .9 moves no weight.
# What happens: mean and standard deviation are computed in 32 bits. The mean of eight times .9 is not .9 to the last
# bit, and the difference is divided by a deviation of 0 plus 1e-6: each response gets an advantage of about -.06.
# Met by: partial credit and length penalties, whose groups are often equal and seldom 0 or 1.
# The cure here: in rg_env's trainers such a group has an advantage of exactly 0.
source "$(dirname "$0")/environment.sh"
environment skyrl==0.4.0 skyrl-gym==0.4.0 torch==2.13.0 ray==2.57.0 transformers==5.16.1 omegaconf==2.3.1 hydra-core==1.3.4 \
  numpy jaxtyping loguru tensordict accelerate peft==0.18.1 torchdata func_timeout
"$python" - <<'PY'
import sys
from importlib.metadata import version

import numpy
import torch
from skyrl.backends.skyrl_train.utils.ppo_utils import compute_grpo_outcome_advantage


def advantage(reward, size):
    """The largest advantage, in size, of a group of equal rewards."""
    rewards = torch.full((size, 1), reward)
    advantages, _ = compute_grpo_outcome_advantage(rewards, torch.ones(size, 1), numpy.array(["prompt"] * size))
    return float(advantages.abs().max())


print("skyrl", version("skyrl"), "torch", version("torch"))
for reward, size in [(0.5, 8), (0.7, 8), (0.9, 8), (0.7, 12), (1.0, 8)]:
    print(f"{size} responses with reward {reward}: advantage of size {advantage(reward, size):.3f}")
moved = sum(advantage(hundredths / 100, 8) > 1e-3 for hundredths in range(1, 100))
print(f"of the rewards .01 to .99 in groups of 8, {moved} of 99 move weights")
sys.exit(not (advantage(0.9, 8) > 0.01 and advantage(0.5, 8) == 0 and moved > 10))
PY
