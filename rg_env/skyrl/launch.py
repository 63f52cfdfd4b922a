"""Starts Ray, runs training in a Ray task, and stops Ray.

The task is on the node where the command was started, so that its dump lies where the user looks.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from loguru import logger
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from skyrl.train.utils import initialize_ray

from rg_env.base.errors import ConfigError, RGEnvError
from rg_env.base.processes import SCRATCH, STOPPED_BY
from rg_env.skyrl.logs import open_log
from rg_env.skyrl.train_config import RGTrainConfig
from rg_env.terminal.reports import Reports

_STOP_SECONDS = 20.0
"""How long a canceled run may take to close its dump before Ray is stopped."""
_POLL = 0.2


def launch_training(cfg: RGTrainConfig) -> None:
    """Train to the end.

    Args:
        cfg: from `load_run`.
    """
    reports = Reports.of_this_process()
    log = open_log(cfg, reports)
    model = Path(cfg.trainer.policy.model.path).name
    reports.send(title=f"{model} on {cfg.rg_dump.device}")
    reports.begin("starting Ray")
    logger.info("training {} on {}: starting Ray", cfg.trainer.policy.model.path, cfg.rg_dump.device)
    with running_ray(cfg):
        if log is not None:
            with contextlib.suppress(OSError, KeyError):  # SkyRL's workers will open this file, a link to our log
                Path(os.environ["SKYRL_LOG_FILE"]).symlink_to(log.name)
        reports.begin("importing SkyRL in the trainer's process")
        wait_for_task(on_this_node(training_task), cfg, reports)


@ray.remote(num_cpus=1, max_retries=0)  # Ray would silently restart the run under a new id
def training_task(cfg: RGTrainConfig, reports: Reports) -> None:
    from rg_env.skyrl.experiment import run_training

    run_training(cfg, reports)


@contextmanager
def running_ray(cfg: RGTrainConfig) -> Iterator[None]:
    """Ray for the duration of the run. On the CPU it is a private one that leaves no files behind."""
    os.environ.setdefault(_RAYS_WAIT, str(_WAIT))
    if cfg.rg_dump.device == "cpu":
        from rg_env.skyrl.cpu.cpu_experiment import cpu_ray

        with explaining_a_slow_start(), cpu_ray(cfg):
            yield
        return
    with explaining_a_slow_start():
        initialize_ray(cfg)
    try:
        yield
    finally:
        ray.shutdown()


SLOW_START = "The current node timed out during startup"
"""How Ray 2.57 begins its error (`ray/_private/node.py`)."""
_RAYS_WAIT = "RAY_raylet_start_wait_time_s"
_WAIT = 300
"""Seconds that Ray's node may take to start. Ray's own 30 are too few on a busy machine."""


@contextmanager
def explaining_a_slow_start() -> Iterator[None]:
    """Say what to set where Ray's node was not ready in time, as on a busy machine."""
    try:
        yield
    except Exception as error:
        if not str(error).startswith(SLOW_START):
            raise
        waited = int(os.environ.get(_RAYS_WAIT, _WAIT))
        raise RGEnvError(
            f"Ray's node was not ready after {waited} s: on a busy machine, start again with "
            f"{_RAYS_WAIT}={10 * waited} in the environment; otherwise Ray's logs say why it did not start"
        ) from error


def on_this_node(task: Any) -> Any:
    """Return a Ray task, to be run on the node of this process.

    Raises:
        ConfigError: this node offers Ray no CPU, so the task would wait forever.
    """
    here = ray.get_runtime_context().get_node_id()
    resources: dict[str, float] = next((node["Resources"] for node in ray.nodes() if node["NodeID"] == here), {})
    if resources.get("CPU", 0) < 1:
        raise ConfigError(
            "this node offers Ray no CPU, and the task that writes the dump runs where the command is started: start "
            "it on another node, or start Ray here without --num-cpus 0"
        )
    return task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False))


def wait_for_task(task: Any, cfg: RGTrainConfig, reports: Reports) -> None:
    """Run the task and wait for it; when it is to stop, let it close its dump first.

    SIGTERM stops it as Ctrl-C does: a scheduler may send it to all processes of a job, and Ray's handler aborts. That
    needs the main thread, which alone handles signals.
    """
    # The parent is noted before the run: another one at the end means that the supervisor was killed.
    stopped, before, parent = threading.Event(), None, os.getppid()
    if threading.current_thread() is threading.main_thread():
        before = signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    with socket.create_server(("127.0.0.1", 0)) as lifeline:  # closed when this process ends, however it ends
        job = task.remote(cfg, replace(reports, lifeline=lifeline.getsockname()[1]))
        try:
            # In short waits: SIGTERM only sets the event, which somebody has to look at.
            while not ray.wait([job], timeout=_POLL)[0]:
                if stopped.is_set():
                    raise KeyboardInterrupt
            ray.get(job)
        except KeyboardInterrupt:
            logger.warning("stopping: closing the dump")
            # First the reason, then the end of the lifeline, at which the task closes its dump. Ray's `force` would
            # kill it before that.
            _tell_why(lifeline, _reason(parent, signal.SIGTERM if stopped.is_set() else signal.SIGINT))
            lifeline.close()
            ray.cancel(job, force=False)
            ray.wait([job], timeout=_STOP_SECONDS)
            raise
        except ray.exceptions.RayTaskError as error:
            # Ray wraps what the task raised. An error that the user can fix is shown without Ray's traceback.
            if isinstance(error.cause, RGEnvError):
                raise error.cause from None
            raise
        finally:
            if before is not None:
                signal.signal(signal.SIGTERM, before)


def _reason(parent: int, received: signal.Signals) -> str:
    """Why the run is to stop: its supervisor sends SIGTERM for every signal, and the kernel if that is killed."""
    if os.getppid() != parent:
        return "killed"
    name = received.name
    with contextlib.suppress(OSError, KeyError):
        name = Path(os.environ[SCRATCH], STOPPED_BY).read_text()
    return f"stopped by {name}"


def _tell_why(lifeline: socket.socket, reason: str) -> None:
    """Send the reason to the task, which notes it in the manifest; it may not be connected yet."""
    lifeline.settimeout(_POLL)
    with contextlib.suppress(OSError):
        connection, _ = lifeline.accept()
        with connection:
            connection.sendall(reason.encode())
