"""Places the task of a run on the node where the command was started, so that its dump lies where the user looks."""

from __future__ import annotations

from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rg_env.errors import ConfigError


def on_this_node(task: Any) -> Any:
    """A Ray task or actor class, to be run on the node of this process.

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
