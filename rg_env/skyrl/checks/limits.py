"""Limits of SkyRL's settings that their types do not express: enumerations, and bounds that SkyRL's code implies.

Invariant: a value that SkyRL can use is never refused here. A test compares the enumerations with SkyRL's.
Not covered: combinations of settings, which the other modules of this package check.
"""

from __future__ import annotations

import functools
from fnmatch import fnmatchcase
from typing import Any

_ABOVE_0 = {"above": 0}
_FROM_0 = {"at_least": 0}
_FROM_1 = {"at_least": 1}
_OFF_OR_MORE = {"at_least": -1}
_SHARE = {"at_least": 0, "at_most": 1}
_FILLED = {"filled": True}

ADVANTAGE_ESTIMATORS = ("grpo", "gae", "rloo", "reinforce++", "maxrl")
POLICY_LOSSES = (
    *("regular", "dual_clip", "gspo", "cispo", "rollout_is", "clip_cov", "kl_cov", "sapo", "dppo"),
    *("cross_entropy", "importance_sampling"),
)
REGISTERED = ("trainer.algorithm.advantage_estimator", "trainer.algorithm.policy_loss_type")
"""Settings that name an entry of one of SkyRL's registries, which imported modules can extend."""

LIMITS: dict[str, dict[str, Any]] = {
    "data.dataloader.num_workers": _FROM_0,
    "environment.skyrl_gym.max_env_workers": _FROM_0,
    # -- the run
    "trainer.strategy": {"choices": ("fsdp", "fsdp2", "megatron")},
    "trainer.sequence_parallel_backend": {"choices": ("ulysses",)},
    "trainer.logger": {"choices": ("wandb", "mlflow", "swanlab", "tensorboard", "console")},
    "trainer.resume_mode": {"choices": ("none", "latest", "from_path")},
    "trainer.fused_lm_head_logprob_backend": {"choices": ("torch", "triton")},
    "trainer.seed": _FROM_0,
    "trainer.*_path": _FILLED,
    "trainer.epochs": _FROM_1,
    "trainer.max_training_steps": _FROM_1,
    "trainer.update_epochs_per_batch": _FROM_1,
    "trainer.*_batch_size*": _FROM_1,
    "trainer.max_prompt_length": _FROM_1,
    "trainer.max_tokens_per_microbatch": _OFF_OR_MORE,
    "trainer.max_ckpts_to_keep": _OFF_OR_MORE,
    "trainer.*_interval": _OFF_OR_MORE,
    "trainer.num_logger_*_samples": _OFF_OR_MORE,
    "trainer.logprobs_chunk_size": _FROM_1,
    "trainer.placement.*_num_*": _FROM_1,
    # -- models and optimizers
    "trainer.*.sequence_parallel_size": _FROM_1,
    "trainer.*.model.lora.rank": _FROM_0,
    "trainer.*.model.lora.alpha": _ABOVE_0,
    "trainer.*.model.lora.dropout": {"at_least": 0, "below": 1},
    "trainer.*.optimizer_config.lr": _FROM_0,
    "trainer.*.optimizer_config.adam_betas": {"at_least": 0, "below": 1},
    "trainer.*.optimizer_config.weight_decay": _FROM_0,
    "trainer.*.optimizer_config.max_grad_norm": _FROM_0,
    "trainer.*.optimizer_config.num_warmup_steps": _FROM_0,
    "trainer.*.optimizer_config.scheduler": {
        "choices": (
            *("linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup"),
            *("inverse_sqrt", "reduce_lr_on_plateau", "cosine_with_min_lr", "cosine_warmup_with_min_lr"),
            *("warmup_stable_decay", "greedy"),
        )
    },
    # -- the algorithm
    REGISTERED[0]: {"choices": ADVANTAGE_ESTIMATORS},
    REGISTERED[1]: {"choices": POLICY_LOSSES},
    "trainer.algorithm.loss_reduction": {
        "choices": ("token_mean", "token_mean_legacy", "sequence_mean", "seq_mean_token_sum_norm", "prompt_mean")
    },
    "trainer.algorithm.kl_estimator_type": {"choices": ("k1", "k2", "k3", "abs")},
    "trainer.algorithm.kl_ctrl.type": {"choices": ("fixed", "adaptive")},
    "trainer.algorithm.kl_ctrl.kl_target": _ABOVE_0,
    "trainer.algorithm.kl_ctrl.horizon": _FROM_1,
    "trainer.algorithm.kl_loss_coef": _FROM_0,
    "trainer.algorithm.temperature": _ABOVE_0,
    "trainer.algorithm.zero_variance_filter_tol": _FROM_0,
    "trainer.algorithm.lambd": _SHARE,
    "trainer.algorithm.gamma": _SHARE,
    "trainer.algorithm.eps_clip_*": _FROM_0,
    "trainer.algorithm.clip_ratio_c": _ABOVE_0,
    "trainer.algorithm.value_clip": _FROM_0,
    "trainer.algorithm.max_seq_len": _FROM_1,
    "trainer.algorithm.dppo.dppo_type": {"choices": ("binary_tv", "binary_kl")},
    "trainer.algorithm.off_policy_correction.tis_ratio_type": {"choices": ("token", "sequence")},
    "trainer.algorithm.off_policy_correction.sequence_mask_metric": {"choices": ("product", "geometric")},
    "trainer.algorithm.dynamic_sampling.type": {"choices": ("filter", "replace")},
    "trainer.algorithm.dynamic_sampling.max_sample_batches": _OFF_OR_MORE,
    "trainer.algorithm.dynamic_sampling.min_replace_ratio": _SHARE,
    "trainer.fully_async.max_staleness_steps": _FROM_0,
    "trainer.fully_async.num_parallel_generation_workers": _FROM_1,
    "trainer.fully_async.simulate_*_seconds": _FROM_0,
    # -- generation
    "generator.n_samples_per_prompt": _FROM_1,
    "generator.eval_n_samples_per_prompt": _FROM_1,
    "generator.max_turns": _FROM_1,
    "generator.max_input_length": _FROM_1,
    "generator.chat_template.source": {"choices": ("name", "file")},
    "generator.*sampling_params.max_generate_length": _FROM_1,
    "generator.*sampling_params.repetition_penalty": _ABOVE_0,
    "generator.*sampling_params.temperature": _FROM_0,
    "generator.*sampling_params.top_p": {"above": 0, "at_most": 1},
    "generator.*sampling_params.min_p": _SHARE,
    "generator.*sampling_params.top_k": _OFF_OR_MORE,
    "generator.*sampling_params.logprobs": _FROM_0,
    "generator.inference_engine.backend": {"choices": ("vllm",)},
    "generator.inference_engine.distributed_executor_backend": {"choices": ("ray", "mp")},
    "generator.inference_engine.num_engines": _FROM_1,
    "generator.inference_engine.*_parallel_size": _FROM_1,
    "generator.inference_engine.gpu_memory_utilization": {"above": 0, "at_most": 1},
    "generator.inference_engine.max_num_*": _FROM_1,
    "generator.inference_engine.num_prefill": _FROM_0,
}
"""Pattern of a setting → its limits, as `rg_env.config.check_value` takes them."""


@functools.cache
def limits_of(setting: str) -> dict[str, Any]:
    """The limits of one of SkyRL's settings; empty if only its type is checked."""
    return next((limits for pattern, limits in LIMITS.items() if fnmatchcase(setting, pattern)), {})
