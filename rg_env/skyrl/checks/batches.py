"""Batch sizes that divide.

SkyRL checks the same (`validate_batch_sizes`), but in terms of its own variables, and sometimes without a message.
"""

from __future__ import annotations

from typing import Any

from rg_env.errors import ConfigError


def check_batches(cfg: Any) -> None:
    """Raises ConfigError unless training batch, mini batches and micro batches divide for policy and critic."""
    trainer = cfg.trainer
    roles = ["policy"] + ["critic"] * (trainer.critic.model.path is not None)
    for role in roles:
        mini = getattr(trainer, f"{role}_mini_batch_size")
        _at_least_one(f"trainer.{role}_mini_batch_size", mini)
        total = trainer.train_batch_size
        if total < mini or total % mini:
            raise ConfigError(
                f"trainer.train_batch_size={total}: must be divisible by trainer.{role}_mini_batch_size={mini}, "
                f"such as {max(1, total // mini) * mini}"
            )
        workers = _data_parallel(trainer, role)
        responses = mini * cfg.generator.n_samples_per_prompt
        share = f"trainer.{role}_mini_batch_size={mini} × n_samples_per_prompt / {workers} {role} worker(s)"
        if responses % workers:
            raise ConfigError(f"{share} = {responses} / {workers}: must be a whole number of responses for each worker")
        micro = trainer.micro_train_batch_size_per_gpu
        _at_least_one("trainer.micro_train_batch_size_per_gpu", micro)
        if (responses // workers) % micro:
            raise ConfigError(
                f"trainer.micro_train_batch_size_per_gpu={micro}: must divide {share} = {responses // workers}, "
                f"such as {_divisor_near(responses // workers, micro)}"
            )
    _at_least_one("trainer.micro_forward_batch_size_per_gpu", trainer.micro_forward_batch_size_per_gpu)


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


def _at_least_one(setting: str, value: int) -> None:
    if value < 1:
        raise ConfigError(f"{setting}={value}: must be at least 1")


def _divisor_near(number: int, wish: int) -> int:
    return max(d for d in range(1, min(wish, number) + 1) if number % d == 0)
