"""Starts Ray, runs training in a Ray task, and stops Ray."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from loguru import logger
from skyrl.train.utils import initialize_ray

from rg_env.errors import RGEnvError
from rg_env.skyrl.config import RGTrainConfig
from rg_env.skyrl.logs import open_log
from rg_env.skyrl.placement import on_this_node
from rg_env.terminal.reports import Reports
from rg_env.terminal.supervisor import stop

_STOP_SECONDS = 20.0
"""How long a canceled run may take to close its dump before Ray is stopped."""
_POLL = 0.2


def launch_training(cfg: RGTrainConfig) -> None:
    """Train to the end.

    Args:
        cfg: from `load_config`.
    """
    with _started(cfg, "train") as reports:
        _wait(on_this_node(training_task), cfg, reports)


@ray.remote(num_cpus=1, max_retries=0)  # Ray would silently restart the run under a new id
def training_task(cfg: RGTrainConfig, reports: Reports) -> None:
    from rg_env.skyrl.experiment import run_training

    run_training(cfg, reports)


@contextmanager
def _started(cfg: RGTrainConfig, command: str) -> Iterator[Reports]:
    """Ray and the log of a command."""
    reports = Reports.of_this_process()
    log = open_log(cfg, command, reports)
    reports.send(
        "start", model=cfg.trainer.policy.model.path, device=cfg.rg_dump.device, solved_at=cfg.rg_dump.solved_at
    )
    reports.phase("starting Ray")
    logger.info("{} {} on {}: starting Ray", command, cfg.trainer.policy.model.path, cfg.rg_dump.device)
    with running_ray(cfg), stop.on_sigterm():
        if log is not None:
            _join_logs(log)
        yield reports


@contextmanager
def running_ray(cfg: RGTrainConfig) -> Iterator[None]:
    """Ray for the duration of the run. On the CPU it is a private one that leaves no files behind."""
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


def _join_logs(log: Path) -> None:
    """Have SkyRL's workers write to our log: the file that they will open becomes a link to it."""
    with contextlib.suppress(OSError, KeyError):
        Path(os.environ["SKYRL_LOG_FILE"]).symlink_to(log.name)


def _wait(task: Any, *args: Any) -> Any:
    """Run a task and wait for it; when it is to stop, let it close its dump first."""
    stop.is_deferred = True
    job = task.remote(*args)
    try:
        while not ray.wait([job], timeout=_POLL)[0]:
            if stop.requested.is_set():
                raise KeyboardInterrupt
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
