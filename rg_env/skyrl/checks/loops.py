"""Checks what SkyRL's training loops support, and that a run can resume.

Invariant: combinations that SkyRL refuses only after it has loaded the model, or fails on during a run, are refused
before anything starts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rg_env.skyrl.checks.settings import require, value_of


def check_resumption(cfg: Any) -> None:
    """Refuse a checkpoint that cannot be resumed from. Raises ConfigError."""
    trainer, mode = cfg.trainer, value_of(cfg, "trainer.resume_mode")
    if mode == "from_path":
        setting, path = "trainer.resume_path", str(trainer.resume_path or "")
        right = "trainer.resume_mode=from_path needs a checkpoint, such as …/global_step_40"
        require(cfg, setting, "global_step_" in Path(path).name, right)
        require(cfg, setting, "://" in path or Path(path).is_dir(), "there is no such folder")
    latest = Path(trainer.ckpt_path) / "latest_ckpt_global_step.txt"
    right = (
        f"SkyRL cannot resume from {trainer.ckpt_path} with that; set it to 0 to write no more checkpoints, "
        "or set trainer.resume_mode=none for a new run"
    )
    require(cfg, "trainer.ckpt_interval", mode != "latest" or trainer.ckpt_interval >= 0 or not latest.exists(), right)


def finished_at(cfg: Any) -> int | None:
    """The last step of the run that `latest` would resume, if there is nothing left to train; else None.

    SkyRL would start everything, evaluate and, with `max_training_steps`, train one step more. Not recognized: a run on
    files that is limited by its epochs, because how many of their rows are too long is not known yet.
    """
    trainer = cfg.trainer
    latest = Path(trainer.ckpt_path) / "latest_ckpt_global_step.txt"
    text = latest.read_text().strip() if latest.is_file() else ""
    if value_of(cfg, "trainer.resume_mode") != "latest" or not text.isdecimal():
        return None
    limits = [] if trainer.max_training_steps is None else [trainer.max_training_steps]
    if not cfg.data.train_data:
        limits.append((cfg.rg_dump.items or cfg.rg_dump.size) // trainer.train_batch_size * trainer.epochs)
    return int(text) if limits and int(text) >= min(limits) else None


def check_fully_async(cfg: Any) -> None:
    """Refuse what the fully-async loop cannot do. Imports torch. Raises ConfigError."""
    from skyrl.train.fully_async_trainer import LOSSES_WITH_OLD_LOGPROBS

    trainer, settings, algorithm = cfg.trainer, cfg.trainer.fully_async, cfg.trainer.algorithm
    batch, mini_batch = trainer.train_batch_size, trainer.policy_mini_batch_size
    workers, most = settings.num_parallel_generation_workers, mini_batch * (settings.max_staleness_steps + 1)
    loss = value_of(cfg, "trainer.algorithm.policy_loss_type")
    uses_rollout_logprobs = loss not in {one.value for one in LOSSES_WITH_OLD_LOGPROBS} or (
        loss == "cispo" and algorithm.cispo.cispo_anchor == "rollout"
    )
    checks: dict[str, tuple[object, str]] = {
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
            uses_rollout_logprobs,
            "when the fully-async loop trains, the weights that sampled are gone; use a loss with the sampler's "
            "logprobs: rollout_is, dppo, or cispo with trainer.algorithm.cispo.cispo_anchor=rollout",
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
