"""Checks of batch sizes that SkyRL's `validate_batch_sizes` lacks, or answers with an empty message."""

from __future__ import annotations

from typing import Any

from rg_env.errors import ConfigError
from rg_env.skyrl.checks.settings import require


def check_batches(cfg: Any) -> None:
    """Raises ConfigError unless each worker gets a whole number of the responses of a mini-batch."""
    trainer = cfg.trainer
    for role in ["policy"] + ["critic"] * (trainer.critic.model.path is not None):
        mini = getattr(trainer, f"{role}_mini_batch_size")
        right = f"must be divisible by trainer.{role}_mini_batch_size={mini}"
        require(cfg, "trainer.train_batch_size", trainer.train_batch_size % mini == 0, right)
        workers = _data_parallel(trainer, role)
        responses = mini * cfg.generator.n_samples_per_prompt
        if responses % workers:
            raise ConfigError(
                f"trainer.{role}_mini_batch_size={mini} × n_samples_per_prompt / {workers} {role} worker(s) = "
                f"{responses} / {workers}: must be a whole number of responses for each worker"
            )
        micro, each = trainer.micro_train_batch_size_per_gpu, responses // workers
        right = f"must divide the {each} responses of a mini-batch that each {role} worker gets"
        require(cfg, "trainer.micro_train_batch_size_per_gpu", each % micro == 0, right)


def _data_parallel(trainer: Any, role: str) -> int:
    placement = trainer.placement
    world: int = getattr(placement, f"{role}_num_nodes") * getattr(placement, f"{role}_num_gpus_per_node")
    width: int = getattr(trainer, role).sequence_parallel_size
    if trainer.strategy == "megatron":
        parts = trainer.policy.megatron_config
        width = parts.tensor_model_parallel_size * parts.pipeline_model_parallel_size * parts.context_parallel_size
    if world % width:
        raise ConfigError(f"the {world} GPU(s) of the {role} do not divide by its model-parallel width of {width}")
    return world // width
