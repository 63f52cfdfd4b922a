"""Names that users know from the Atropos environment and from older versions of SkyRL, and our settings for them.

Invariant: the tables in docs/coming-from.md have the same rows; a test compares them.
"""

from __future__ import annotations

from typing import NamedTuple

from rg_env.config import GONE, PREFIX

_ENGINE = "generator.inference_engine"


class OtherName(NamedTuple):
    """What a name elsewhere is here.

    Attributes:
        settings: full names, the most likely first; empty if there is no counterpart.
        note: how it differs, or why there is none.
    """

    settings: tuple[str, ...]
    note: str = ""


def _ours(name: str, note: str = "") -> OtherName:
    return OtherName((f"{PREFIX}.{name}",), note)


def _engine(name: str, note: str = "") -> OtherName:
    return OtherName((f"{_ENGINE}.{name}",), note)


ATROPOS: dict[str, OtherName] = {
    "dump_rollouts": _ours("dump_rollouts"),
    "dump_failed_rollouts": _ours("dump_failed_rollouts"),
    "rollout_save_score_threshold": _ours("rollout_save_score_threshold", "compares base scores, before the penalty"),
    "complexity_mode": _ours("complexity_mode"),
    "curriculum_target_accuracy": _ours("curriculum_target_accuracy"),
    "num_eval_samples_per_task": _ours("num_eval_samples_per_task"),
    "eval_seed": _ours("eval_seed"),
    "debug_logging": _ours("debug_logging"),
    "suppress_base_env_logs": _ours("suppress_base_env_logs"),
    "seed": OtherName((f"{PREFIX}.seed", "trainer.seed"), "the first draws the items, the second seeds the trainer"),
    "mask_too_long_completions": _ours("mask_too_long_completions"),
    "tokenizer_name": OtherName(("trainer.policy.model.path",), "the model's own tokenizer is used"),
    "model_name": OtherName(("trainer.policy.model.path",)),
    "group_size": OtherName(("generator.n_samples_per_prompt",)),
    "max_token_length": OtherName(
        ("generator.sampling_params.max_generate_length",), "tokens of the response; trainer.max_prompt_length is apart"
    ),
    "batch_size": OtherName(("trainer.train_batch_size",), "counts prompts, not responses"),
    "total_steps": OtherName(("trainer.max_training_steps",)),
    "steps_per_eval": OtherName(("trainer.eval_interval",)),
    "use_wandb": OtherName(("trainer.logger",), "set it to wandb"),
    "wandb_name": OtherName(("trainer.run_name",), "trainer.project_name names the project"),
    "num_rollouts_to_keep": OtherName(("trainer.num_logger_train_samples",), "the dump has all of them anyway"),
    "num_rollouts_per_group_for_logging": OtherName(
        ("trainer.num_logger_train_samples",), "the dump has all of them anyway"
    ),
    "max_eval_samples": _ours("num_eval_samples_per_task", "a number per task, not in total"),
    "eval_sample_seed": _ours("eval_seed"),
    "dataset": _ours("tasks", "items are generated, not downloaded"),
    "base_url": _engine("external_proxy_url", "only with servers that you start yourself"),
    "num_max_requests_at_once": _engine("max_num_seqs"),
    "api_key": OtherName((), "servers are asked without a key"),
    "num_requests_for_eval": OtherName((), "evaluation uses the same engines as training"),
    "rollout_server_url": OtherName((), "SkyRL needs no server between environment and trainer"),
    "inference_weight": OtherName((), "task weights are in the task mix"),
    "min_batch_allocation": OtherName((), "task weights are in the task mix"),
    "eval_handling": OtherName((), "SkyRL's synchronous loop stops training while it evaluates"),
    "eval_limit_ratio": OtherName((), "SkyRL's synchronous loop stops training while it evaluates"),
}
"""Settings of the Atropos environment and of its base class."""

OLDER_SKYRL: dict[str, OtherName] = {
    "skyrl_train.entrypoints": OtherName((), "the module is now skyrl.train.entrypoints"),
    "generator.backend": _engine("backend"),
    "generator.num_inference_engines": _engine("num_engines"),
    "generator.inference_engine_tensor_parallel_size": _engine("tensor_parallel_size"),
    "generator.inference_engine_pipeline_parallel_size": _engine("pipeline_parallel_size"),
    "generator.inference_engine_data_parallel_size": _engine("data_parallel_size"),
    "generator.inference_engine_expert_parallel_size": _engine("expert_parallel_size"),
    "generator.weight_sync_backend": _engine("weight_sync_backend"),
    "generator.run_engines_locally": _engine("run_engines_locally"),
    "generator.remote_inference_engine_urls": _engine("external_server_urls", "and external_proxy_url for the router"),
    "generator.model_dtype": _engine("model_dtype"),
    "generator.gpu_memory_utilization": _engine("gpu_memory_utilization"),
    "generator.enforce_eager": _engine("enforce_eager"),
    "generator.enable_prefix_caching": _engine("enable_prefix_caching"),
    "generator.enable_chunked_prefill": _engine("enable_chunked_prefill"),
    "generator.max_num_batched_tokens": _engine("max_num_batched_tokens"),
    "generator.max_num_seqs": _engine("max_num_seqs"),
    "generator.vllm_v1_disable_multiproc": _engine("vllm_v1_disable_multiproc"),
    "generator.async_engine": OtherName((), "the engine is always asynchronous"),
    "generator.enable_http_endpoint": OtherName((), "the engine always has an HTTP endpoint"),
    "trainer.use_sample_packing": OtherName(("trainer.remove_microbatch_padding",)),
}
"""Settings and modules of `skyrl_train`, before it became `skyrl.train`."""


def other_name(typed: str) -> OtherName | None:
    """What a name elsewhere is here; None if it is not known from there.

    Args:
        typed: a key, or an argument such as `--env.group_size`.
    """
    name = typed.lstrip("-").partition("=")[0]
    if name.startswith("skyrl_train."):
        return OLDER_SKYRL["skyrl_train.entrypoints"]
    if gone := GONE.get(name.removeprefix(f"{PREFIX}.")):
        return OtherName((), gone)
    bare = name.removeprefix("env.").removeprefix("openai.").removeprefix("generator.inference_engine.")
    return OLDER_SKYRL.get(name) or OLDER_SKYRL.get(f"generator.{bare}") or ATROPOS.get(bare.rpartition(".")[2])


def as_sentence(other: OtherName) -> str:
    """As it stands in an error message."""
    note = f" ({other.note})" if other.note else ""
    return f"use {' or '.join(other.settings)}{note}" if other.settings else f"there is no such setting: {other.note}"
