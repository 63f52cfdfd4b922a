#!/usr/bin/env bash
# SkyRL 0.4.0 drops `additional_kwargs.skip_special_tokens` without a word.
#
# The usual guess: `additional_kwargs` of the sampling parameters go to the engine as they are, so a model whose
#   `<think>` is a special token keeps it in the text with skip_special_tokens=false.
# What happens: a key that SkyRL sets itself wins. The engine gets skip_special_tokens=true, and the text that is scored
#   lacks the tags, whatever the setting says. Other keys arrive.
# Met by: models whose tags are special tokens, and environments that look for the end-of-turn token in the text.
# The cure here: `rg-env train`, `eval` and `collect` try the tags with the tokenizer, and refuse such a model.
source "$(dirname "$0")/environment.sh"
environment skyrl==0.4.0 skyrl-gym==0.4.0 torch==2.13.0 ray==2.57.0 transformers==5.16.1 omegaconf==2.3.1 hydra-core==1.3.4 \
  numpy jaxtyping loguru tensordict accelerate peft==0.18.1 torchdata func_timeout aiohttp pybase64 orjson httpx
"$python" - <<'PY'
import sys
from importlib.metadata import version

from skyrl.backends.skyrl_train.inference_servers.engine_utils import get_sampling_params_for_backend
from skyrl.train.config import SamplingParams

asked = {"skip_special_tokens": False, "repetition_penalty": 1.1}
sent = get_sampling_params_for_backend("vllm", SamplingParams(additional_kwargs=asked))
print("skyrl", version("skyrl"))
for name, value in asked.items():
    print(f"{name}: set to {value}, the engine gets {sent[name]}")
sys.exit(not (sent["skip_special_tokens"] is True and sent["repetition_penalty"] == 1.1))
PY
