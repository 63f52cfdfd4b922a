"""Checks what SkyRL's training loops support, and that a run can resume.

Invariant: combinations that SkyRL refuses, or fails on during a run, are refused before anything starts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rg_env.skyrl.checks.settings import require

_FULLY_ASYNC_LOSSES = ("rollout_is", "dppo")
"""SkyRL's losses that need no forward pass with the sampling weights, which are gone by the time of training."""


def check_loop(cfg: Any) -> None:
    """Refuse what the loop cannot run or resume. Raises ConfigError."""
    if cfg.trainer.fully_async.enabled:
        _check_fully_async(cfg)
    trainer = cfg.trainer
    mode = str(getattr(trainer.resume_mode, "value", trainer.resume_mode))
    if mode == "from_path":
        setting, path = "trainer.resume_path", str(trainer.resume_path or "")
        right = "trainer.resume_mode=from_path needs a checkpoint, such as …/global_step_40"
        require(cfg, setting, "global_step_" in Path(path).name, right)
        require(cfg, setting, "://" in path or Path(path).is_dir(), "there is no such folder")
    latest = Path(trainer.ckpt_path) / "latest_ckpt_global_step.txt"
    require(
        cfg,
        "trainer.ckpt_interval",
        mode != "latest" or trainer.ckpt_interval >= 0 or not latest.exists(),
        f"SkyRL cannot resume from {trainer.ckpt_path} with that; set it to 0 to write no more checkpoints, "
        "or set trainer.resume_mode=none for a new run",
    )
    if mode == "latest" and latest.is_file() and latest.read_text().strip().isdecimal():
        step, last = int(latest.read_text()), trainer.max_training_steps  # SkyRL would train one step more
        right = f"the run in {trainer.ckpt_path} is finished, at step {step}; raise it to train on, or set "
        require(cfg, "trainer.max_training_steps", last is None or step < last, f"{right}trainer.resume_mode=none")


def _check_fully_async(cfg: Any) -> None:
    trainer, settings, algorithm = cfg.trainer, cfg.trainer.fully_async, cfg.trainer.algorithm
    batch, mini_batch = trainer.train_batch_size, trainer.policy_mini_batch_size
    workers, most = settings.num_parallel_generation_workers, mini_batch * (settings.max_staleness_steps + 1)
    loss = getattr(algorithm.policy_loss_type, "value", algorithm.policy_loss_type)
    checks: dict[str, tuple[bool, str]] = {
        "trainer.fully_async.simulate_training": (
            not settings.simulate_training,
            "a simulated training trains nothing; set it to false",
        ),
        "trainer.policy_mini_batch_size": (
            batch == mini_batch,
            f"the fully-async loop trains on one mini-batch per step; set it to trainer.train_batch_size={batch}",
        ),
        "trainer.fully_async.num_parallel_generation_workers": (
            mini_batch <= workers <= most,
            f"must be at least trainer.policy_mini_batch_size={mini_batch} and at most {most}, "
            "which is that × (trainer.fully_async.max_staleness_steps + 1)",
        ),
        "trainer.algorithm.policy_loss_type": (
            loss in _FULLY_ASYNC_LOSSES or (loss == "cispo" and algorithm.cispo.cispo_anchor == "rollout"),
            "when the fully-async loop trains, the weights that sampled are gone; "
            f"use {' or '.join(_FULLY_ASYNC_LOSSES)}, or cispo with trainer.algorithm.cispo.cispo_anchor=rollout, "
            "which use the sampler's logprobs",
        ),
        "trainer.algorithm.dynamic_sampling.type": (
            algorithm.dynamic_sampling.type is None,
            "the fully-async loop does not support it; use trainer.fully_async.sample_full_batch instead",
        ),
        "trainer.fully_async.sample_full_batch": (
            algorithm.zero_variance_filter or not settings.sample_full_batch,
            "also needs trainer.algorithm.zero_variance_filter=true",
        ),
        "generator.batched": (
            not cfg.generator.batched,
            "the fully-async loop must be able to pause single responses; set it to false",
        ),
        "trainer.placement.colocate_all": (
            not trainer.placement.colocate_all,
            "the fully-async loop samples while it trains, on separate GPUs; set it to false",
        ),
    }
    for setting, (ok, right) in checks.items():
        require(cfg, setting, ok, right)
