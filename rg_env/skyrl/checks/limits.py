"""Limits of SkyRL's settings that their types do not express and that `validate_cfg` does not check.

Invariant: a value that SkyRL can use is never refused here. A test compares what is listed with SkyRL.
Not covered: combinations of settings, which the other modules of this package check.
"""

from __future__ import annotations

import functools
from fnmatch import fnmatchcase
from typing import Any

from rg_env.config import check_value
from rg_env.skyrl.checks.settings import value_of

_CHOICES = {
    "trainer.strategy": "fsdp fsdp2 megatron",
    "trainer.logger": "wandb mlflow swanlab tensorboard console",
    "trainer.resume_mode": "none latest from_path",
    "trainer.algorithm.kl_estimator_type": "k1 k2 k3 abs",
    "trainer.algorithm.kl_ctrl.type": "fixed adaptive",
    "trainer.algorithm.dynamic_sampling.type": "filter replace",
    "generator.chat_template.source": "name file",
    "generator.inference_engine.backend": "vllm",
}
_OPTIMIZER = "trainer.*.optimizer_config"
_SAMPLING = "generator.*sampling_params"
_BOUNDS: tuple[tuple[dict[str, Any], tuple[str, ...]], ...] = (
    ({"filled": True}, ("trainer.*_path",)),
    ({"above": 0}, ("trainer.algorithm.temperature", f"{_SAMPLING}.repetition_penalty", "trainer.*.model.lora.alpha")),
    ({"above": 0, "at_most": 1}, (f"{_SAMPLING}.top_p", "generator.inference_engine.gpu_memory_utilization")),
    ({"at_least": 0, "below": 1}, (f"{_OPTIMIZER}.adam_betas", "trainer.*.model.lora.dropout")),
    ({"at_least": 0, "at_most": 1}, ("trainer.algorithm.lambd", "trainer.algorithm.gamma", f"{_SAMPLING}.min_p")),
    (
        {"at_least": 1},
        (
            *("trainer.epochs", "trainer.max_training_steps", "trainer.update_epochs_per_batch"),
            *("trainer.*_batch_size*", "trainer.max_prompt_length", "trainer.placement.*_num_*"),
            *("trainer.fully_async.num_parallel_generation_workers", "trainer.*.sequence_parallel_size"),
            *("generator.*n_samples_per_prompt", "generator.max_turns", "generator.max_input_length"),
            *(f"{_SAMPLING}.max_generate_length", "generator.inference_engine.num_engines"),
            *("generator.inference_engine.*_parallel_size", "generator.inference_engine.max_num_*"),
        ),
    ),
    (
        {"at_least": 0},
        (
            *("data.dataloader.num_workers", "environment.skyrl_gym.max_env_workers", "trainer.seed"),
            *(f"{_OPTIMIZER}.lr", f"{_OPTIMIZER}.weight_decay", f"{_OPTIMIZER}.max_grad_norm"),
            *(f"{_OPTIMIZER}.num_warmup_steps", "trainer.*.model.lora.rank", "trainer.algorithm.kl_loss_coef"),
            *("trainer.algorithm.eps_clip_*", "trainer.fully_async.max_staleness_steps", f"{_SAMPLING}.temperature"),
        ),
    ),
    ({"at_least": -1}, ("trainer.*_interval", "trainer.max_ckpts_to_keep", f"{_SAMPLING}.top_k")),
)
LIMITS: dict[str, dict[str, Any]] = {
    **{name: {"choices": tuple(choices.split())} for name, choices in _CHOICES.items()},
    **{pattern: limits for limits, patterns in _BOUNDS for pattern in patterns},
}
"""Pattern of a setting → its limits, as `rg_env.config.check_value` takes them."""


@functools.cache
def limits_of(setting: str) -> dict[str, Any]:
    """The limits of one of SkyRL's settings; empty if only its type is checked."""
    return next((limits for pattern, limits in LIMITS.items() if fnmatchcase(setting, pattern)), {})


def check_registered(cfg: Any) -> None:
    """Check the names in registries, which modules of `imports` can extend. Imports torch. Raises ConfigError."""
    from skyrl.backends.skyrl_train.utils.ppo_utils import AdvantageEstimatorRegistry, PolicyLossRegistry
    from transformers.trainer_utils import SchedulerType

    registered = {
        "trainer.algorithm.advantage_estimator": AdvantageEstimatorRegistry.list_available(),
        "trainer.algorithm.policy_loss_type": PolicyLossRegistry.list_available(),
        "trainer.policy.optimizer_config.scheduler": [kind.value for kind in SchedulerType],
        "trainer.critic.optimizer_config.scheduler": [kind.value for kind in SchedulerType],
    }
    for setting, names in registered.items():
        value = value_of(cfg, setting)
        check_value(setting, getattr(value, "value", value), str, {"choices": names})
