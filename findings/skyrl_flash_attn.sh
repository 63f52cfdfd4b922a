#!/usr/bin/env bash
# SkyRL 0.4.0 imports flash-attn whatever `trainer.flash_attn` says.
#
# The usual guess: with `trainer.flash_attn=false` and `trainer.remove_microbatch_padding=false`, the two settings that
#   use it, training needs no flash-attn.
# What happens: the module of the model wrapper imports it at the top. No worker of any strategy can be imported.
# Met by: machines for which flash-attn has no wheel.
# The cure here: with both settings off, rg_env starts SkyRL's FSDP workers with a stand-in for what is not used.
source "$(dirname "$0")/environment.sh"
environment skyrl==0.4.0 skyrl-gym==0.4.0 torch==2.13.0 ray==2.57.0 transformers==5.16.1 omegaconf==2.3.1 hydra-core==1.3.4 \
  numpy jaxtyping loguru tensordict accelerate peft==0.18.1 torchdata func_timeout aiohttp pybase64 orjson httpx
"$python" - <<'PY'
import sys
from importlib.metadata import version

from skyrl.train.config import SkyRLTrainConfig

config = SkyRLTrainConfig.from_cli_overrides(["trainer.flash_attn=false", "trainer.remove_microbatch_padding=false"])
print("skyrl", version("skyrl"), "trainer.flash_attn:", config.trainer.flash_attn)
try:
    from skyrl.backends.skyrl_train.workers.fsdp.fsdp_worker import PolicyWorker  # noqa: F401
except ModuleNotFoundError as error:
    print("importing the policy's worker:", error)
    sys.exit(error.name != "flash_attn")
sys.exit(1)
PY
