"""Checks that a configuration can run on the CPU."""

from __future__ import annotations

from typing import Any

from rg_env.cpu import cpu_threads, uses_server
from rg_env.cpu.sampling_params import SamplingParams
from rg_env.errors import ConfigError
from rg_env.skyrl.checks.settings import require, value_of

_ENGINE = "generator.inference_engine"
_ROLES = ("policy", "ref", "critic")
_OFF = (
    *("trainer.flash_attn", "trainer.remove_microbatch_padding", "trainer.placement.colocate_all"),
    *("trainer.policy.torch_profiler_config.enable", "trainer.policy.record_memory", f"{_ENGINE}.enable_pd"),
    *(f"{_ENGINE}.enable_return_routed_experts", f"{_ENGINE}.enable_return_sample_support_set"),
    *("trainer.algorithm.enable_sample_support_replay", "generator.vision_language_generator"),
    *(f"trainer.{role}.fsdp_config.cpu_offload" for role in _ROLES),
)
_BFLOAT16 = "set it to false; to compute in bfloat16 set trainer.policy.fsdp_config.mixed_precision.param_dtype=bf16"
_ALLOWED: dict[str, tuple[tuple[Any, ...], str]] = {
    **dict.fromkeys(_OFF, ((False,), "set it to false")),
    **{f"trainer.{role}.sequence_parallel_size": ((1,), "set it to 1") for role in _ROLES},
    **{
        f"trainer.placement.{role}_num_gpus_per_node": ((1,), f"set it to 1, and {role}_num_nodes to the workers")
        for role in _ROLES
    },
    "trainer.strategy": (("fsdp", "fsdp2"), "use fsdp"),
    "trainer.bf16": ((False,), _BFLOAT16),
    "trainer.policy.model.lora.rank": ((0,), "the sampler loads whole models; set it to 0"),
    f"{_ENGINE}.model_dtype": (("float32", "bfloat16"), "use float32 or bfloat16"),
    f"{_ENGINE}.num_engines": ((1,), "there is one sampler; set it to 1"),
    f"{_ENGINE}.fp8_weight_sync_mode": ((None,), "set it to null"),
}
"""Setting → allowed values, and advice for others."""


def check_cpu(cfg: Any) -> None:
    """Refuse what cannot work on the CPU.

    Args:
        cfg: a `SkyRLTrainConfig` or a subclass.

    Raises:
        ConfigError: one line naming the setting, its value and what would be right.
    """
    allowed = dict(_ALLOWED)
    for role in _ROLES:
        precision = f"trainer.{role}.fsdp_config.mixed_precision"
        if value_of(cfg, precision):
            kinds = (f"{precision}.param_dtype", f"{precision}.reduce_dtype")
            allowed |= dict.fromkeys(kinds, (("bf16", "fp32"), "use bf16 or fp32"))
    for setting, (values, right) in allowed.items():
        require(cfg, setting, value_of(cfg, setting) in values, f"cannot run on the CPU; {right}")
    generator, engine = cfg.generator, cfg.generator.inference_engine
    if uses_server(engine):
        right = "name the vLLM server, such as http://127.0.0.1:8000; SkyRL's router does not run on the CPU"
        require(cfg, f"{_ENGINE}.external_proxy_url", engine.external_proxy_url, right)
    else:  # vLLM supports more of them than our sampler
        for name in ("sampling_params", "eval_sampling_params"):
            _check_sampling_params(f"generator.{name}", getattr(generator, name))
    cpu_threads()


def _check_sampling_params(where: str, params: Any) -> None:
    if params is None:
        return
    # SkyRL passes repetition_penalty to no engine: setting it would silently do nothing.
    names = ("temperature", "top_p", "top_k", "min_p", "logprobs", "stop", "repetition_penalty")
    known = {"max_tokens": params.max_generate_length, **{name: getattr(params, name) for name in names}}
    try:
        SamplingParams.from_vllm({**(params.additional_kwargs or {}), **known})
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
