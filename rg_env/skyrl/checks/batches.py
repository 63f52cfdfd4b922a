"""Checks that batch sizes are divisible.

SkyRL checks this too (`validate_batch_sizes`), but its messages name internal variables, or are empty.
"""

from __future__ import annotations

from typing import Any

from rg_env.errors import ConfigError, need_number
from rg_env.skyrl.checks.settings import require, value_of

_MICRO_TRAIN, _MICRO_FORWARD = "trainer.micro_train_batch_size_per_gpu", "trainer.micro_forward_batch_size_per_gpu"


def check_batches(cfg: Any) -> None:
    """Raises ConfigError unless training batch, mini batches and micro batches divide for policy and critic."""
    trainer = cfg.trainer
    total, micro = trainer.train_batch_size, trainer.micro_train_batch_size_per_gpu
    for role in ["policy"] + ["critic"] * (trainer.critic.model.path is not None):
        setting = f"trainer.{role}_mini_batch_size"
        for name in (setting, _MICRO_TRAIN, _MICRO_FORWARD):
            need_number(name, value_of(cfg, name), whole=True, at_least=1)
        mini = value_of(cfg, setting)
        nearest = max(1, total // mini) * mini
        divides = total >= mini and total % mini == 0
        require(cfg, "trainer.train_batch_size", divides, f"must be divisible by {setting}={mini}, such as {nearest}")
        workers = _data_parallel(trainer, role)
        responses = mini * cfg.generator.n_samples_per_prompt
        share = f"{setting}={mini} × n_samples_per_prompt / {workers} {role} worker(s)"
        if responses % workers:
            raise ConfigError(f"{share} = {responses} / {workers}: must be a whole number of responses for each worker")
        each = responses // workers
        nearest = max(d for d in range(1, min(micro, each) + 1) if each % d == 0)
        require(cfg, _MICRO_TRAIN, each % micro == 0, f"must divide {share} = {each}, such as {nearest}")


def _data_parallel(trainer: Any, role: str) -> int:
    placement = trainer.placement
    world: int = getattr(placement, f"{role}_num_nodes") * getattr(placement, f"{role}_num_gpus_per_node")
    if trainer.strategy == "megatron":
        parts = trainer.policy.megatron_config
        width = parts.tensor_model_parallel_size * parts.pipeline_model_parallel_size * parts.context_parallel_size
    else:
        width = getattr(trainer, role).sequence_parallel_size
    if world % width:
        raise ConfigError(f"the {world} GPU(s) of the {role} do not divide by its model-parallel width of {width}")
    return world // int(width)
