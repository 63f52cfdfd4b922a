"""Batch sizes that divide, and what fully asynchronous training asks of them.

SkyRL checks the same (`validate_batch_sizes`, the constructor of its fully asynchronous trainer), but in terms of its
own variables, sometimes without a message, and in part only after minutes, when the models are loaded.
"""

from __future__ import annotations

from typing import Any

from rg_env.errors import ConfigError

_STALE_LOSSES = ("rollout_is", "dppo")
"""Losses that compare with the policy that wrote the response, rather than with one recomputed before training."""


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


def check_fully_async(cfg: Any) -> None:
    """Raises ConfigError for what SkyRL's fully asynchronous trainer would stop at, once everything is loaded."""
    trainer, algorithm = cfg.trainer, cfg.trainer.algorithm
    if not trainer.fully_async.enabled:
        return

    def need(setting: str, value: Any, ok: bool, right: str) -> None:
        if not ok:
            raise ConfigError(f"{setting}={value}: with trainer.fully_async.enabled, {right}")

    mini, total = trainer.policy_mini_batch_size, trainer.train_batch_size
    need("trainer.train_batch_size", total, total == mini, f"must equal trainer.policy_mini_batch_size={mini}")
    workers, most = trainer.fully_async.num_parallel_generation_workers, trainer.fully_async.max_staleness_steps + 1
    where = "trainer.fully_async.num_parallel_generation_workers"
    need(
        where,
        workers,
        mini <= workers <= mini * most,
        f"must be between {mini} and {mini * most} (see docs/recipes.md)",
    )
    colocated, batched = trainer.placement.colocate_all, cfg.generator.batched
    need("trainer.placement.colocate_all", colocated, not colocated, "must be false: training and generation overlap")
    need("generator.batched", batched, not batched, "must be false: responses are paused one by one")
    sampling, loss = algorithm.dynamic_sampling.type, algorithm.policy_loss_type
    need(
        "trainer.algorithm.dynamic_sampling.type",
        sampling,
        sampling is None,
        "use trainer.fully_async.sample_full_batch",
    )
    right = f"must be one of {', '.join(_STALE_LOSSES)}: there is no old policy to recompute logprobs with"
    need("trainer.algorithm.policy_loss_type", loss, loss in _STALE_LOSSES, right)
    full, zero = trainer.fully_async.sample_full_batch, algorithm.zero_variance_filter
    need(
        "trainer.fully_async.sample_full_batch",
        full,
        zero or not full,
        "set trainer.algorithm.zero_variance_filter too",
    )


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
