#!/usr/bin/env bash
# SkyRL 0.4.0: `clip_cov` clips nothing, and `kl_cov` is ruled by its KL term.
#
# The usual guess: policy_loss_type=clip_cov and kl_cov do what their paper says, with the paper's bounds as defaults.
# What happens: SkyRL divides advantages by the number of tokens of the mini-batch before the loss. A covariance with them
#   is below 1/1000 and never above clip_cov_lb=1, so clip_cov is plain PPO. The KL term of kl_cov is not divided: from
#   the second optimizer step of a batch on it is thousands of times the reward's part.
# Met by: whoever compares losses, or takes them against a collapse of entropy.
# The cure here: `rg-env train` refuses both with these defaults, and says by what to divide them.
source "$(dirname "$0")/environment.sh"
environment skyrl==0.4.0 skyrl-gym==0.4.0 torch==2.13.0 ray==2.57.0 transformers==5.16.1 omegaconf==2.3.1 hydra-core==1.3.4 \
  numpy jaxtyping loguru tensordict accelerate peft==0.18.1 torchdata func_timeout aiohttp pybase64 orjson httpx
"$python" - <<'PY'
import sys
from importlib.metadata import version

import torch
from skyrl.backends.skyrl_train.utils.ppo_utils import PolicyLossRegistry, apply_loss_reduction_to_advantages_minibatch
from skyrl.train.config.config import AlgorithmConfig

torch.manual_seed(0)
mask, logprobs = torch.ones(16, 512), -3 * torch.rand(16, 512)
advantages = torch.randn(16, 1).expand(16, 512)
divided = apply_loss_reduction_to_advantages_minibatch(advantages, mask, "token_mean", 1, None)
print("skyrl", version("skyrl"))

config, loss = AlgorithmConfig(policy_loss_type="clip_cov"), PolicyLossRegistry.get("clip_cov")
clipped = [loss(logprobs, logprobs, each, config, mask)[1]["clip_ratio"] for each in (advantages, divided)]
print(f"clip_cov, share of tokens that are clipped: {clipped[0]:.4f} of the advantages, {clipped[1]:.4f} as SkyRL divides them")

config, loss = AlgorithmConfig(policy_loss_type="kl_cov"), PolicyLossRegistry.get("kl_cov")
whole = loss(logprobs + 0.1, logprobs, divided, config, mask)[0].item()
config.kl_cov.ppo_kl_coef = 0.0
of_reward = loss(logprobs + 0.1, logprobs, divided, config, mask)[0].item()
print(f"kl_cov, once logprobs have moved by 0.1: {of_reward:.4f} from the rewards, {whole - of_reward:.1f} from the KL term")
sys.exit(not (clipped[0] > 0 == clipped[1] and abs(whole - of_reward) > 100 * abs(of_reward)))
PY
