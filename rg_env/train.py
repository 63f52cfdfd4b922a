"""The entrypoint of training and evaluation: check everything, start Ray, run SkyRL, stop Ray.

`rg-env train`, `python -m rg_env.train` and SkyRL's own `main_base` with `trainer.override_entrypoint=rg_env.train` all
call it with the same arguments.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import ray
from loguru import logger
from skyrl.train.utils import initialize_ray

from rg_env.errors import RGEnvError
from rg_env.output import print_error
from rg_env.skyrl.config import RGTrainConfig, load_config
from rg_env.skyrl.logs import set_up_driver_logging
from rg_env.skyrl.progress import ProgressSink, show_progress

_STOP_SECONDS = 20.0
"""How long a canceled run may take to close its dump before Ray is stopped."""


def main(argv: Iterable[str] | None = None) -> None:
    """Train, from `argv` or the command line: YAML files and `key=value` overrides. Exits 2 on a wrong setting."""
    sys.exit(run_command(train, sys.argv[1:] if argv is None else argv))


def run_command(command: Callable[[Iterable[str]], Any], argv: Iterable[str]) -> int:
    """Run `command`; print user errors as one line.

    Returns:
        exit code: 0; 2 after a wrong setting or an unusable folder; 130 after Ctrl-C or SIGTERM.
    """
    try:
        command(argv)
    except RGEnvError as error:
        print_error(error)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def train(argv: Iterable[str]) -> Path:
    """Train to the end.

    Returns:
        the dump folder of the run.

    Raises:
        ConfigError: before anything is started.
    """
    cfg = load_config(argv)
    set_up_driver_logging(cfg.rg_dump)
    logger.info("training {} on {}: starting Ray", cfg.trainer.policy.model.path, cfg.rg_dump.device)
    with running_ray(cfg):
        sink = ProgressSink()
        job = _training_task.remote(cfg, sink)
        _wait(job, sink)
    return Path(cfg.rg_dump.dump_dir)


def evaluate(argv: Iterable[str]) -> dict[str, float]:
    """Evaluate on the fixed evaluation set.

    Returns:
        SkyRL's evaluation metrics.

    Raises:
        ConfigError: before anything is started.
    """
    cfg = load_config(argv, training=False)
    cfg.trainer.eval_interval = max(1, cfg.trainer.eval_interval)  # SkyRL's switch for having an evaluation set at all
    set_up_driver_logging(cfg.rg_dump)
    logger.info("evaluating {} on {}: starting Ray", cfg.trainer.policy.model.path, cfg.rg_dump.device)
    with running_ray(cfg):
        metrics: dict[str, float] = _wait(_evaluation_task.remote(cfg), None)
        return metrics


@ray.remote(num_cpus=1, max_retries=0)  # Ray would silently restart the run under a new id
def _training_task(cfg: RGTrainConfig, sink: ProgressSink) -> None:
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


if __name__ == "__main__":
    main()
