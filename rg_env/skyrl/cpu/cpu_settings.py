"""Settings that a CPU run has in place of SkyRL's defaults, and the sampling parameters that its sampler has.

Importable without torch, Ray and SkyRL.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rg_env.base.errors import ConfigError, need
from rg_env.base.processes import usable_cores

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

GREEDY_BELOW = 1e-5
"""A temperature below this means argmax, as in vLLM."""
_FIXED = {"min_tokens": 1, "skip_special_tokens": True, "include_stop_str_in_output": True, "repetition_penalty": 1}
"""Sent by SkyRL with every request. The sampler supports no other values: the first token never ends a response."""


def cpu_threads(workers: int = 1) -> int:
    """Number of torch threads of one process if `workers` processes compute at the same time.

    The environment variable `RG_ENV_CPU_THREADS` if set, otherwise this process's share of the available cores.
    Sampling and training alternate, so each can use all cores.

    Raises:
        ConfigError: the variable is not a whole number of at least 1.
    """
    text = os.environ.get("RG_ENV_CPU_THREADS")
    if text is None:
        return max(1, usable_cores() // workers)
    need(text.isdecimal() and int(text) >= 1, "RG_ENV_CPU_THREADS", text, "must be a whole number of at least 1")
    return int(text)


def uses_server(engine: Any) -> bool:
    """Return whether `generator.inference_engine` names running vLLM servers; same rule as in SkyRL."""
    return bool(engine.external_proxy_url or engine.external_server_urls)


NANO_FOLDER = Path(__file__).parent / "nano"


def nano_path() -> Path:
    """Return the folder of the small policy included in this package."""
    if not (NANO_FOLDER / "config.json").is_file():
        raise ConfigError(
            f"the policy `nano` is not in {NANO_FOLDER}; train it with scripts/train_nano.py, or reinstall"
        )
    return NANO_FOLDER


class SamplingParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sampling parameters of one request, with vLLM's names and meaning.

    Logprobs are those of the whole distribution, before top-p, top-k or min-p cut it.
    """

    max_tokens: Annotated[int, Meta(ge=1)] = 16
    temperature: Annotated[float, Meta(ge=0)] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Meta(ge=-1)] = -1
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    stop: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    logprobs: Annotated[int, Meta(ge=0, le=1)] | None = None

    @classmethod
    def from_vllm(cls, params: Mapping[str, Any]) -> SamplingParams:
        """Raises ConfigError for a parameter that the sampler does not have, and for a value out of range."""
        fields = {name: value for name, value in params.items() if value is not None and _FIXED.get(name) != value}
        # vLLM takes one stop string, too.
        if isinstance(fields.get("stop"), str):
            fields["stop"] = [fields["stop"]]
        try:
            return msgspec.convert(fields, cls)
        except msgspec.ValidationError as error:
            raise ConfigError(f"the CPU sampler cannot use these sampling parameters: {error}, in {fields}") from None
