"""What a run on the CPU sets in SkyRL's configuration, and what it cannot have. Importable without torch and Ray."""

from __future__ import annotations

import os
from typing import Any

from rg_env.cpu.sampling_params import SamplingParams
from rg_env.errors import ConfigError

CPU_OVERRIDES: dict[str, Any] = {
    "trainer.strategy": "fsdp",
    "trainer.flash_attn": False,
    "trainer.remove_microbatch_padding": False,  # packing needs flash attention
    "trainer.gradient_checkpointing": False,  # trades time for memory; memory is what a CPU has
    "trainer.bf16": False,
    "trainer.use_expandable_segments": False,
    "trainer.enable_ray_gpu_monitor": False,
    "trainer.placement.colocate_all": False,
    "trainer.policy.fsdp_config.reshard_after_forward": False,
    "trainer.ref.fsdp_config.reshard_after_forward": False,
    "trainer.critic.fsdp_config.reshard_after_forward": False,
    "trainer.logger": "console",
    "generator.inference_engine.model_dtype": "float32",
    "generator.inference_engine.enable_prefix_caching": False,  # prompts are shared within a batch, never across
    "generator.inference_engine.enable_ray_prometheus_stats": False,
    "data.dataloader.num_workers": 0,
}
"""Dotted setting → value: defaults of a CPU run, under what the user sets."""

PRECISIONS = ("bf16", "fp32")
"""What a training worker may compute in, in SkyRL's names; the weights that the optimizer moves are float32 always."""

DTYPES = ("float32", "bfloat16")
"""What the sampler may compute in."""

THREADS_VARIABLE = "RG_ENV_CPU_THREADS"
"""Environment variable: threads that torch uses in each of the sampler and the training workers."""

_NEEDS_PROXY = "name the vLLM server, such as http://127.0.0.1:8000; SkyRL's router does not run here"


def cpu_threads(workers: int = 1) -> int:
    """Threads for one process when `workers` processes compute at the same time.

    Sampling and training take turns, so each may have all cores.

    Returns:
        `RG_ENV_CPU_THREADS` if set, else the cores that this process may use, shared among the workers; at least 1.

    Raises:
        ConfigError: if the variable is no whole number of at least 1.
    """
    text = os.environ.get(THREADS_VARIABLE)
    if text is None:
        return max(1, len(os.sched_getaffinity(0)) // workers)
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"{THREADS_VARIABLE}={text!r}: must be a whole number of at least 1")
    return int(text)


def uses_server(engine: Any) -> bool:
    """Whether responses come from vLLM servers that somebody else started; SkyRL asks the same question.

    Args:
        engine: `generator.inference_engine`.
    """
    return bool(engine.external_proxy_url or engine.external_server_urls)


def check_cpu_config(cfg: Any) -> None:
    """Refuse what cannot work on the CPU, before Ray starts.

    Args:
        cfg: a `SkyRLTrainConfig` or a subclass.

    Raises:
        ConfigError: one line naming the setting, its value and what would be right.
    """
    trainer, generator = cfg.trainer, cfg.generator
    engine, placement = generator.inference_engine, trainer.placement

    def need(setting: str, value: Any, ok: bool, right: str) -> None:
        if not ok:
            raise ConfigError(f"{setting}={_show(value)} cannot run on the CPU: {right}")

    need("trainer.strategy", trainer.strategy, trainer.strategy in ("fsdp", "fsdp2"), "use fsdp")
    for name in ("flash_attn", "remove_microbatch_padding"):
        need(f"trainer.{name}", getattr(trainer, name), not getattr(trainer, name), "set it to false")
    how = "set it to false; to compute in bfloat16 set trainer.policy.fsdp_config.mixed_precision.param_dtype=bf16"
    need("trainer.bf16", trainer.bf16, not trainer.bf16, how)
    need("trainer.placement.colocate_all", placement.colocate_all, not placement.colocate_all, "set it to false")
    for role in ("policy", "ref", "critic"):
        section = getattr(trainer, role)
        where = f"trainer.{role}"
        nodes, per_node = (getattr(placement, f"{role}_{part}") for part in ("num_nodes", "num_gpus_per_node"))
        more = f"for {per_node} data-parallel workers set {role}_num_nodes={nodes * per_node} and this to 1"
        need(f"trainer.placement.{role}_num_gpus_per_node", per_node, per_node == 1, more)
        width = section.sequence_parallel_size
        need(f"{where}.sequence_parallel_size", width, width == 1, "set it to 1")
        fsdp = section.fsdp_config
        need(f"{where}.fsdp_config.cpu_offload", fsdp.cpu_offload, not fsdp.cpu_offload, "set it to false")
        if fsdp.mixed_precision is not None:
            for kind in ("param_dtype", "reduce_dtype"):
                dtype = getattr(fsdp.mixed_precision, kind)
                need(f"{where}.fsdp_config.mixed_precision.{kind}", dtype, dtype in PRECISIONS, "use bf16 or fp32")
    lora = trainer.policy.model.lora.rank
    need("trainer.policy.model.lora.rank", lora, lora == 0, "the sampler loads whole models; set it to 0")
    profiler = trainer.policy.torch_profiler_config.enable
    need("trainer.policy.torch_profiler_config.enable", profiler, not profiler, "set it to false")
    need("trainer.policy.record_memory", trainer.policy.record_memory, not trainer.policy.record_memory, "GPU only")

    where = "generator.inference_engine"
    need(f"{where}.model_dtype", engine.model_dtype, engine.model_dtype in DTYPES, "use float32 or bfloat16")
    need(f"{where}.num_engines", engine.num_engines, engine.num_engines == 1, "there is one sampler; set it to 1")
    server = uses_server(engine)
    if server:
        need(f"{where}.external_proxy_url", engine.external_proxy_url, bool(engine.external_proxy_url), _NEEDS_PROXY)
    need(f"{where}.enable_pd", engine.enable_pd, not engine.enable_pd, "set it to false")
    multimodal = generator.vision_language_generator
    need("generator.vision_language_generator", multimodal, not multimodal, "the sampler reads text only")

    if not server:  # vLLM has more of them than our sampler
        for name in ("sampling_params", "eval_sampling_params"):
            _check_sampling_params(f"generator.{name}", getattr(generator, name))
    extra = generator.sampling_params.additional_kwargs or {}
    if "seed" in extra and generator.n_samples_per_prompt > 1:
        raise ConfigError(
            f"generator.sampling_params.additional_kwargs.seed={extra['seed']!r}: makes all samples of a group equal; "
            "set trainer.seed instead"
        )
    cpu_threads()


def _check_sampling_params(where: str, params: Any) -> None:
    if params is None:
        return
    known = {
        "max_tokens": params.max_generate_length,
        **{name: getattr(params, name) for name in ("temperature", "top_p", "top_k", "min_p", "logprobs", "stop")},
        # SkyRL does not pass this one on, to any engine: setting it would silently do nothing.
        "repetition_penalty": params.repetition_penalty,
        "min_tokens": 1,
    }
    try:
        SamplingParams.from_vllm({**(params.additional_kwargs or {}), **known})
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _show(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
