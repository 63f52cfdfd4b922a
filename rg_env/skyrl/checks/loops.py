"""What SkyRL's training loops cannot be combined with, and whether a run can go on from where it is told to.

Invariant: what SkyRL 0.3.0 would refuse or stumble over in the middle of a run is one line before anything starts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rg_env.errors import ConfigError

_FULLY_ASYNC_LOSSES = ("rollout_is", "dppo")
"""SkyRL's losses that need no second forward pass with the weights that sampled, which are gone by then."""


def check_loop(cfg: Any) -> None:
    """Refuse what the loop cannot run, and what it cannot resume from.

    Args:
        cfg: a `SkyRLTrainConfig` or a subclass, with SkyRL's defaults filled in.

    Raises:
        ConfigError: one line naming the setting, its value and what would be right.
    """
    if cfg.trainer.fully_async.enabled:
        _check_fully_async(cfg)
    sampling, generator = cfg.trainer.algorithm.dynamic_sampling.type, cfg.generator
    if sampling is not None and generator.step_wise_trajectories:
        _refuse(
            "generator.step_wise_trajectories",
            "true",
            f"dynamic sampling ({sampling}) keeps no account of steps in SkyRL 0.3.0; set one of the two aside "
            "(an rg_dump trajectory has one step anyway)",
        )
    _check_resumption(cfg.trainer)


def _check_resumption(trainer: Any) -> None:
    mode = str(getattr(trainer.resume_mode, "value", trainer.resume_mode))
    if mode == "from_path":
        path = trainer.resume_path
        if not path or "global_step_" not in Path(path).name:
            _refuse("trainer.resume_path", path, "trainer.resume_mode=from_path needs a checkpoint, …/global_step_40")
        if "://" not in path and not Path(path).is_dir():
            _refuse("trainer.resume_path", path, "there is no such folder")
    latest = Path(trainer.ckpt_path) / "latest_ckpt_global_step.txt"
    if mode == "latest" and trainer.ckpt_interval < 0 and latest.exists():
        _refuse(
            "trainer.ckpt_interval",
            trainer.ckpt_interval,
            f"SkyRL 0.3.0 cannot resume from {trainer.ckpt_path} with that; for no more checkpoints set it to 0, "
            "for a new run set trainer.resume_mode=none",
        )


def _check_fully_async(cfg: Any) -> None:
    trainer, settings, algorithm = cfg.trainer, cfg.trainer.fully_async, cfg.trainer.algorithm
    if settings.simulate_training:
        _refuse("trainer.fully_async.simulate_training", "true", "a simulated training trains nothing; set it to false")
    batch, mini_batch = trainer.train_batch_size, trainer.policy_mini_batch_size
    if batch != mini_batch:
        _refuse(
            "trainer.policy_mini_batch_size",
            mini_batch,
            f"the fully-async loop trains on one mini-batch a step; set it to trainer.train_batch_size={batch}",
        )
    workers, most = settings.num_parallel_generation_workers, mini_batch * (settings.max_staleness_steps + 1)
    if not mini_batch <= workers <= most:
        _refuse(
            "trainer.fully_async.num_parallel_generation_workers",
            workers,
            f"must be at least trainer.policy_mini_batch_size={mini_batch} and at most {most}, "
            "which is that × (trainer.fully_async.max_staleness_steps + 1)",
        )
    loss = str(getattr(algorithm.policy_loss_type, "value", algorithm.policy_loss_type))
    if loss not in _FULLY_ASYNC_LOSSES:
        _refuse(
            "trainer.algorithm.policy_loss_type",
            loss,
            f"the weights that sampled are gone when the fully-async loop trains; "
            f"use {' or '.join(_FULLY_ASYNC_LOSSES)}, which go by the sampler's logprobs",
        )
    if algorithm.dynamic_sampling.type is not None:
        _refuse(
            "trainer.algorithm.dynamic_sampling.type",
            algorithm.dynamic_sampling.type,
            "not in the fully-async loop, which has trainer.fully_async.sample_full_batch instead",
        )
    if settings.sample_full_batch and not algorithm.zero_variance_filter:
        _refuse(
            "trainer.fully_async.sample_full_batch", "true", "needs trainer.algorithm.zero_variance_filter=true as well"
        )
    if cfg.generator.batched:
        _refuse("generator.batched", "true", "the fully-async loop has to pause single responses; set it to false")
    if trainer.placement.colocate_all:
        _refuse(
            "trainer.placement.colocate_all",
            "true",
            "the fully-async loop samples while it trains, on GPUs of their own; set it to false",
        )


def _refuse(setting: str, value: object, right: str) -> None:
    raise ConfigError(f"{setting}={value}: {right}")
