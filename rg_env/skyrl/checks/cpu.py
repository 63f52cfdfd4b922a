"""Checks that a configuration can run on the CPU."""

from __future__ import annotations

from typing import Any

from rg_env.cpu.sampling_params import SamplingParams
from rg_env.cpu.settings import cpu_threads, uses_server
from rg_env.errors import ConfigError, refuse
from rg_env.skyrl.checks.settings import require, value_of

_PRECISIONS = ("bf16", "fp32")
"""Data types of a training worker's computation, in SkyRL's names; the optimizer's weights are always float32."""
_OFF = "set it to false"

_ALLOWED: dict[str, tuple[tuple[Any, ...], str]] = {
    "trainer.strategy": (("fsdp", "fsdp2"), "use fsdp"),
    "trainer.flash_attn": ((False,), _OFF),
    "trainer.remove_microbatch_padding": ((False,), _OFF),
    "trainer.bf16": (
        (False,),
        f"{_OFF}; to compute in bfloat16 set trainer.policy.fsdp_config.mixed_precision.param_dtype=bf16",
    ),
    "trainer.placement.colocate_all": ((False,), _OFF),
    "trainer.policy.model.lora.rank": ((0,), "the sampler loads whole models; set it to 0"),
    "trainer.policy.torch_profiler_config.enable": ((False,), _OFF),
    "trainer.policy.record_memory": ((False,), _OFF),
    "generator.inference_engine.model_dtype": (("float32", "bfloat16"), "use float32 or bfloat16"),
    "generator.inference_engine.num_engines": ((1,), "there is one sampler; set it to 1"),
    "generator.inference_engine.enable_pd": ((False,), _OFF),
    "generator.inference_engine.enable_return_routed_experts": ((False,), _OFF),
    "generator.inference_engine.enable_return_sample_support_set": ((False,), _OFF),
    "generator.inference_engine.fp8_weight_sync_mode": ((None,), "set it to null"),
    "trainer.algorithm.enable_sample_support_replay": ((False,), _OFF),
    "generator.vision_language_generator": ((False,), "the sampler reads text only"),
}
_ALLOWED_BY_ROLE: dict[str, tuple[tuple[Any, ...], str]] = {
    "trainer.{role}.sequence_parallel_size": ((1,), "set it to 1"),
    "trainer.{role}.fsdp_config.cpu_offload": ((False,), _OFF),
    "trainer.placement.{role}_num_gpus_per_node": (
        (1,),
        "for {workers} data-parallel workers set {role}_num_nodes={workers} and this to 1",
    ),
}
"""Setting → allowed values, and advice for others."""


def check_cpu(cfg: Any) -> None:
    """Refuse what cannot work on the CPU.

    Args:
        cfg: a `SkyRLTrainConfig` or a subclass.

    Raises:
        ConfigError: one line naming the setting, its value and what would be right.
    """
    for setting, (allowed, right) in _ALLOWED.items():
        _allow(cfg, setting, allowed, right)
    placement = cfg.trainer.placement
    for role in ("policy", "ref", "critic"):
        workers = getattr(placement, f"{role}_num_nodes") * getattr(placement, f"{role}_num_gpus_per_node")
        for setting, (allowed, right) in _ALLOWED_BY_ROLE.items():
            _allow(cfg, setting.format(role=role), allowed, right.format(role=role, workers=workers))
        precision = f"trainer.{role}.fsdp_config.mixed_precision"
        if value_of(cfg, precision) is not None:
            for kind in ("param_dtype", "reduce_dtype"):
                _allow(cfg, f"{precision}.{kind}", _PRECISIONS, "use bf16 or fp32")

    generator, engine = cfg.generator, cfg.generator.inference_engine
    if uses_server(engine):
        require(
            cfg,
            "generator.inference_engine.external_proxy_url",
            engine.external_proxy_url,
            "name the vLLM server, such as http://127.0.0.1:8000; SkyRL's router does not run on the CPU",
        )
    else:  # vLLM supports more of them than our sampler
        for name in ("sampling_params", "eval_sampling_params"):
            _check_sampling_params(f"generator.{name}", getattr(generator, name))
    extra = generator.sampling_params.additional_kwargs or {}
    if "seed" in extra and generator.n_samples_per_prompt > 1:
        setting = "generator.sampling_params.additional_kwargs.seed"
        refuse(setting, extra["seed"], "makes all samples of a group equal; set trainer.seed instead")
    cpu_threads()


def _allow(cfg: Any, setting: str, allowed: tuple[Any, ...], right: str) -> None:
    require(cfg, setting, value_of(cfg, setting) in allowed, f"cannot run on the CPU; {right}")


def _check_sampling_params(where: str, params: Any) -> None:
    if params is None:
        return
    known = {
        "max_tokens": params.max_generate_length,
        **{name: getattr(params, name) for name in ("temperature", "top_p", "top_k", "min_p", "logprobs", "stop")},
        # SkyRL passes this to no engine: setting it would silently do nothing.
        "repetition_penalty": params.repetition_penalty,
        "min_tokens": 1,
    }
    try:
        SamplingParams.from_vllm({**(params.additional_kwargs or {}), **known})
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
