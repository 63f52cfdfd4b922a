"""Starts Ray, runs training or evaluation in a Ray task, shows its progress, and stops Ray."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import ray
from loguru import logger
from skyrl.train.utils import initialize_ray

from rg_env.errors import RGEnvError
from rg_env.skyrl.config import RGTrainConfig
from rg_env.skyrl.logs import set_up_driver_logging
from rg_env.skyrl.placement import on_this_node
from rg_env.skyrl.progress import ProgressSink, show_progress

_STOP_SECONDS = 20.0
"""How long a canceled run may take to close its dump before Ray is stopped."""


def launch_training(cfg: RGTrainConfig) -> None:
    """Train to the end.

    Args:
        cfg: from `load_config`.
    """
    set_up_driver_logging(cfg.rg_dump)
    logger.info("training {} on {}: starting Ray", cfg.trainer.policy.model.path, cfg.rg_dump.device)
    with running_ray(cfg):
        sink = ProgressSink()
        job = on_this_node(training_task).remote(cfg, sink)
        _wait(job, sink)


def launch_evaluation(cfg: RGTrainConfig) -> dict[str, float]:
    """Evaluate on the fixed evaluation set.

    Args:
        cfg: from `load_config`.

    Returns:
        SkyRL's evaluation metrics.
    """
    cfg.trainer.eval_interval = max(1, cfg.trainer.eval_interval)  # SkyRL's switch for having an evaluation set at all
    set_up_driver_logging(cfg.rg_dump)
    logger.info("evaluating {} on {}: starting Ray", cfg.trainer.policy.model.path, cfg.rg_dump.device)
    with running_ray(cfg):
        metrics: dict[str, float] = _wait(on_this_node(_evaluation_task).remote(cfg), None)
        return metrics


@ray.remote(num_cpus=1, max_retries=0)  # Ray would silently restart the run under a new id
def training_task(cfg: RGTrainConfig, sink: ProgressSink) -> None:
    from rg_env.skyrl.experiment import run_training

    run_training(cfg, sink)


@ray.remote(num_cpus=1, max_retries=0)  # Ray would silently restart the run under a new id
def _evaluation_task(cfg: RGTrainConfig) -> dict[str, float]:
    from rg_env.skyrl.experiment import run_evaluation

    return run_evaluation(cfg)


@contextmanager
def running_ray(cfg: RGTrainConfig) -> Iterator[None]:
    """Ray for the duration of the run. On the CPU it is a private one that leaves no files behind."""
    before = signal.getsignal(signal.SIGTERM)
    with _started_ray(cfg):
        signal.signal(signal.SIGTERM, _terminate)  # ray.init has installed its own handler, which aborts
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _started_ray(cfg: RGTrainConfig) -> Iterator[None]:
    if cfg.rg_dump.device == "cpu":
        from rg_env.cpu import cpu_ray

        with cpu_ray(cfg):
            yield
        return
    initialize_ray(cfg)
    try:
        yield
    finally:
        ray.shutdown()


def _terminate(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt  # same handling as Ctrl-C


def _wait(job: Any, sink: ProgressSink | None) -> Any:
    """Wait for the task and show its progress; on Ctrl-C or SIGTERM let it close its dump first."""
    try:
        show_progress(job, sink)
        return ray.get(job)
    except KeyboardInterrupt:
        logger.warning("stopping: closing the dump")
        ray.cancel(job, force=False)
        ray.wait([job], timeout=_STOP_SECONDS)
        raise
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, RGEnvError):
            raise error.cause from None
        raise
