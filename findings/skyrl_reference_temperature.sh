#!/usr/bin/env bash
# SkyRL 0.4.0: with a temperature other than 1, the KL term compares the policy with a reference of another temperature.
#
# The usual guess: at the first step policy and reference are the same model, so the KL term is 0, whatever the
#   temperature.
# What happens: the policy's logprobs are those of generator.sampling_params.temperature, the reference's always those of
#   temperature 1. At 0.7 the KL is not 0, and its gradient flattens the policy.
# Met by: recipes with a temperature of 0.6 to 0.8 and use_kl_loss, which is on by default.
# The cure here: `rg-env train` warns of the two together.
source "$(dirname "$0")/environment.sh"
environment skyrl==0.4.0 skyrl-gym==0.4.0 torch==2.13.0 ray==2.57.0 transformers==5.16.1 omegaconf==2.3.1 hydra-core==1.3.4 \
  numpy jaxtyping loguru tensordict accelerate peft==0.18.1 torchdata func_timeout aiohttp pybase64 orjson httpx
cp "$(dirname "$0")/tiny_model.py" "$work"
cd "$work"
"$python" - <<'PY'
import sys
from importlib.metadata import version
from types import ModuleType, SimpleNamespace

import torch
import transformers  # before the next lines: it looks for flash_attn, too
from transformers import LlamaForCausalLM

sys.modules |= {"flash_attn": ModuleType("flash_attn"), "flash_attn.bert_padding": ModuleType("padding")}
sys.modules["flash_attn.bert_padding"].pad_input = sys.modules["flash_attn.bert_padding"].unpad_input = None  # not used

from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
from skyrl.backends.skyrl_train.utils.ppo_utils import compute_approx_kl
from skyrl.backends.skyrl_train.workers.model_wrapper import HFModelWrapper
from skyrl.backends.skyrl_train.workers.worker import PolicyWorkerBase, RefWorkerBase
from skyrl.train.config.config import AlgorithmConfig
from tiny_model import model

torch.manual_seed(0)
torch.cuda.current_device = lambda: torch.device("cpu")  # which both workers ask for
print("skyrl", version("skyrl"))
wrapped = HFModelWrapper(model.float().eval(), use_flash_attention_2=False, bf16=False)
batch = TrainingInputBatch({"sequences": torch.randint(2, 28, (2, 12)), "attention_mask": torch.ones(2, 12, dtype=torch.long)})
batch.metadata = {"response_length": 8}
kl = {}
for temperature in (1.0, 0.7):
    worker = SimpleNamespace(model=wrapped, cfg=SimpleNamespace(algorithm=AlgorithmConfig(temperature=temperature)))
    policy, reference = (
        kind._forward_micro_batch(worker, batch)["output"] for kind in (PolicyWorkerBase, RefWorkerBase)
    )
    kl[temperature] = compute_approx_kl(policy, reference, torch.ones(2, 8), "k3").mean().item()
    print(f"temperature {temperature}: KL of a model to itself as SkyRL computes it: {kl[temperature]:.2e}")
sys.exit(not (kl[1.0] == 0 < kl[0.7]))
PY
