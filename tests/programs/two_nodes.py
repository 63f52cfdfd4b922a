"""Where the task of a run is, in clusters of two nodes on this machine, whose head has one CPU or none."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
import ray
from ray.cluster_utils import Cluster

from rg_env.base.errors import ConfigError
from rg_env.skyrl.launch import on_this_node, wait_for_task
from rg_env.terminal.reports import Reports


@ray.remote(num_cpus=1)
def node(cfg: object = None, reports: object = None) -> str:
    return str(ray.get_runtime_context().get_node_id())


def main() -> None:
    failed: list[str] = []
    answer: dict[str, Any] = {"failed": failed}
    threading.excepthook = lambda failure: failed.append(str(failure.exc_value))
    for cpus in (1, 0):
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": cpus, "include_dashboard": False})
        cluster.add_node(num_cpus=8)
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, log_to_driver=False)
        try:
            nodes = ray.get([on_this_node(node).remote() for _ in range(4)])
            answer["same"] = {ray.get_runtime_context().get_node_id()} == set(nodes)
            thread = threading.Thread(target=wait_for_task, args=(on_this_node(node), None, Reports()))
            thread.start()
            thread.join()
        except ConfigError as error:
            answer["error"] = str(error)
        ray.shutdown()
        cluster.shutdown()
    print("RESULT", json.dumps(answer))


if __name__ == "__main__":
    main()
