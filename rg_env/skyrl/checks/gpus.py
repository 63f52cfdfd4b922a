"""Checks that there are enough GPUs."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from rg_env.config import PREFIX
from rg_env.errors import UnavailableError

_RAY_FOLDER = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray")
"""Where `ray start` leaves the address of the cluster."""


def check_gpus(cfg: Any) -> None:
    """Raises UnavailableError if this machine has too few GPUs. In a cluster that the run would join, Ray decides."""
    if os.environ.get("RAY_ADDRESS") or _ray_is_running():
        return
    import torch

    have = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not have:
        raise UnavailableError(
            f"{PREFIX}.device={cfg.rg_dump.device!r}: this machine has no GPU and RAY_ADDRESS names no cluster; "
            f"configs/cpu/ has the same algorithms for {PREFIX}.device=cpu"
        )
    needed = gpus_needed(cfg)
    if needed > have:
        raise UnavailableError(
            f"this run needs {needed} GPUs and this machine has {have}: lower trainer.placement.*_num_gpus_per_node "
            "and generator.inference_engine.num_engines, or name a larger cluster in RAY_ADDRESS (docs/gpu.md)"
        )


def _ray_is_running() -> bool:
    """Whether a Ray that `ray start` started on this machine answers; SkyRL joins it."""
    with suppress(OSError, ValueError):
        host, _, port = (_RAY_FOLDER / "ray_current_cluster").read_text().strip().rpartition(":")
        socket.create_connection((host, int(port)), timeout=1).close()
        return True
    return False


def gpus_needed(cfg: Any) -> int:
    """GPUs that SkyRL will claim, over all nodes."""
    placement, algorithm, engine = cfg.trainer.placement, cfg.trainer.algorithm, cfg.generator.inference_engine

    def gpus_of(role: str) -> int:
        return int(getattr(placement, f"{role}_num_nodes") * getattr(placement, f"{role}_num_gpus_per_node"))

    width = engine.tensor_parallel_size * engine.pipeline_parallel_size * engine.data_parallel_size
    engines = int(engine.num_engines * width) if engine.run_engines_locally else 0
    needed = gpus_of("policy")
    if placement.colocate_all:
        return needed
    if (algorithm.use_kl_loss or algorithm.use_kl_in_reward) and not placement.colocate_policy_ref:
        needed += gpus_of("ref")
    if cfg.trainer.critic.model.path:
        needed += gpus_of("critic")
    return needed + engines
