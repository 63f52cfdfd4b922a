#!/usr/bin/env bash
# SkyRL 0.4.0: with negative rewards, `maxrl` prefers the worst response of a group.
#
# The usual guess: advantage_estimator=maxrl ranks the responses of a group by reward, as grpo does.
# What happens: it divides by the group's mean reward. Where that is negative, as under a penalty for long responses, the
#   signs turn around: of 0, -0.5 and -1 the last one gets the advantage +1. There is no warning.
# Met by: maxrl with DAPO's overlong punishment, a KL penalty in the reward, or rewards of -1 and 1.
# The cure here: `rg-env train` refuses maxrl with the penalties that make rewards negative.
source "$(dirname "$0")/environment.sh"
environment skyrl==0.4.0 skyrl-gym==0.4.0 torch==2.13.0 ray==2.57.0 transformers==5.16.1 omegaconf==2.3.1 hydra-core==1.3.4 \
  numpy jaxtyping loguru tensordict accelerate peft==0.18.1 torchdata func_timeout aiohttp pybase64 orjson httpx
"$python" - <<'PY'
import sys
from importlib.metadata import version

import numpy as np
import torch
from skyrl.backends.skyrl_train.utils.ppo_utils import AdvantageEstimatorRegistry

print("skyrl", version("skyrl"))
rewards, mask, group = torch.tensor([[0.0], [-0.5], [-1.0]]), torch.ones(3, 1), np.array(["a"] * 3)
advantages = {}
for name in ("grpo", "maxrl"):
    estimate = AdvantageEstimatorRegistry.get(name)
    found, _ = estimate(token_level_rewards=rewards, response_mask=mask, index=group)
    advantages[name] = [round(each, 2) for each in found[:, 0].tolist()]
    print(f"{name}: rewards 0, -0.5, -1 have the advantages {advantages[name]}")
sys.exit(not (advantages["grpo"][0] > 0 > advantages["grpo"][2] and advantages["maxrl"][0] < 0 < advantages["maxrl"][2]))
PY
