"""Starts Ray, runs training or evaluation in a Ray task, shows its progress, and stops Ray."""

from __future__ import annotations

import copy
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
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
from rg_env.skyrl.rollout_run import RolloutJob

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


def launch_rollouts(cfg: RGTrainConfig, jobs: Sequence[tuple[Path | None, RolloutJob]]) -> list[str]:
    """Run jobs one after the other.

    Args:
        cfg: from `load_config`.
        jobs: each with the folder of its model; None: that of the configuration.

    Returns:
        the id of each run.
    """
    set_up_driver_logging(cfg.rg_dump)
    run_ids = []
    with running_ray(cfg):
        for model, job in jobs:
            own = copy.deepcopy(cfg)
            if model is not None:
                own.trainer.policy.model.path = str(model)
            logger.info("{} with {} on {}", job.command, own.trainer.policy.model.path, cfg.rg_dump.device)
            sink = ProgressSink()
            run_ids.append(_wait(on_this_node(_rollout_task).remote(own, job, sink), sink))
    return run_ids


@ray.remote(num_cpus=1, max_retries=0)  # Ray would silently restart the run under a new id
def training_task(cfg: RGTrainConfig, sink: ProgressSink) -> None:
    from rg_env.skyrl.experiment import run_training

    run_training(cfg, sink)


@ray.remote(num_cpus=1, max_retries=0)  # Ray would silently restart the run under a new id
def _rollout_task(cfg: RGTrainConfig, job: RolloutJob, sink: ProgressSink) -> str:
    from rg_env.skyrl.rollout_run import run_rollouts

    return run_rollouts(cfg, job, sink)


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
