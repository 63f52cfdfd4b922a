#!/usr/bin/env bash
# SkyRL 0.4.0: `use_tis=true` alone turns every gradient around.
#
# The usual guess: trainer.algorithm.use_tis=true truncates importance ratios at some usual cap, as its new name,
#   off_policy_correction.tis_ratio_type=token, does at 2.
# What happens: the old setting brings its own cap, -1 by default, and every ratio becomes at most -1. The loss is
#   multiplied by it, so the run learns what it should unlearn. A warning says only that the setting is deprecated.
# Met by: recipes of earlier versions, and posts that name the old setting.
# The cure here: `rg-env train` refuses it, and names the new one.
source "$(dirname "$0")/environment.sh"
environment skyrl==0.4.0 skyrl-gym==0.4.0 torch==2.13.0 ray==2.57.0 transformers==5.16.1 omegaconf==2.3.1 hydra-core==1.3.4 \
  numpy jaxtyping loguru tensordict accelerate peft==0.18.1 torchdata func_timeout aiohttp pybase64 orjson httpx
"$python" - <<'PY'
import sys
from importlib.metadata import version

import torch
from skyrl.backends.skyrl_train.utils.ppo_utils import PolicyLossRegistry
from skyrl.train.config.config import AlgorithmConfig

print("skyrl", version("skyrl"))
gradients = {}
for setting in ("none", "tis_ratio_type=token", "use_tis=true"):
    config = AlgorithmConfig()
    if setting == "use_tis=true":
        # What `validate_cfg` makes of it.
        config.off_policy_correction.token_tis_ratio_clip_high = config.tis_imp_ratio_cap
    if setting != "none":
        config.off_policy_correction.tis_ratio_type = "token"
    logprobs = torch.full((1, 1), -1.0, requires_grad=True)
    old, mask, advantage = torch.full((1, 1), -1.0), torch.ones(1, 1), torch.ones(1, 1)
    loss, _ = PolicyLossRegistry.get("regular")(logprobs, old, advantage, config, mask, old)
    loss.backward()
    gradients[setting] = logprobs.grad.item()
    direction = "up" if gradients[setting] < 0 else "down"
    print(f"{setting}: the logprob of a token with advantage 1 goes {direction}")
sys.exit(not (gradients["none"] == gradients["tis_ratio_type=token"] == -1 and gradients["use_tis=true"] == 1))
PY
