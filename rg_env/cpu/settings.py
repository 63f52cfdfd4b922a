"""What a CPU run has in place of SkyRL's defaults. Importable without torch, Ray and SkyRL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rg_env.errors import ConfigError, need
from rg_env.processes import usable_cores

CPU_OVERRIDES: dict[str, Any] = {
    "trainer.strategy": "fsdp",
    "trainer.flash_attn": False,
    "trainer.remove_microbatch_padding": False,  # packing needs flash attention
    "trainer.gradient_checkpointing": False,  # saves memory at the cost of time; CPU memory is plentiful
    "trainer.bf16": False,
    "trainer.use_expandable_segments": False,
    "trainer.enable_ray_gpu_monitor": False,
    "trainer.placement.colocate_all": False,
    "trainer.policy.fsdp_config.reshard_after_forward": False,
    "trainer.ref.fsdp_config.reshard_after_forward": False,
    "trainer.critic.fsdp_config.reshard_after_forward": False,
    "trainer.logger": "console",
    "generator.inference_engine.model_dtype": "float32",
    "generator.inference_engine.enable_prefix_caching": False,  # the sampler shares prompts only within a batch
    "generator.inference_engine.enable_ray_prometheus_stats": False,
    "data.dataloader.num_workers": 0,
}
"""Dotted setting → value: defaults of a CPU run; the user's settings override them."""

THREADS_VARIABLE = "RG_ENV_CPU_THREADS"
"""Environment variable: number of torch threads in the sampler and in each training worker."""


def cpu_threads(workers: int = 1) -> int:
    """Number of threads of one process if `workers` processes compute at the same time.

    Sampling and training alternate, so each can use all cores.

    Returns:
        `RG_ENV_CPU_THREADS` if set, otherwise this process's share of the available cores; at least 1.

    Raises:
        ConfigError: if the variable is not a whole number of at least 1.
    """
    text = os.environ.get(THREADS_VARIABLE)
    if text is None:
        return max(1, usable_cores() // workers)
    need(text.isdecimal() and int(text) >= 1, THREADS_VARIABLE, text, "must be a whole number of at least 1")
    return int(text)


def uses_server(engine: Any) -> bool:
    """Whether responses come from running vLLM servers; same rule as in SkyRL.

    Args:
        engine: `generator.inference_engine`.
    """
    return bool(engine.external_proxy_url or engine.external_server_urls)


def nano_path() -> Path:
    """The folder of the small policy included in this package."""
    folder = Path(__file__).parent / "nano"
    if not (folder / "config.json").is_file():
        raise ConfigError(f"the policy `nano` is not in {folder}; train it with scripts/train_nano.py, or reinstall")
    return folder
