"""The task of a run is on the node where the command was started, in a cluster of two nodes on this machine."""

import json
import sys

import pytest

from tests.e2e.conftest import run_command

SCRIPT = """
import json, os, threading

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
import ray
from ray.cluster_utils import Cluster

from rg_env.errors import ConfigError
from rg_env.skyrl.launch import _wait, on_this_node
from rg_env.terminal.reports import Reports


@ray.remote(num_cpus=1)
def node(cfg=None, reports=None):
    return ray.get_runtime_context().get_node_id()


answer = {"failed": []}
threading.excepthook = lambda failure: answer["failed"].append(str(failure.exc_value))
for cpus in (1, 0):
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": cpus, "include_dashboard": False})
    cluster.add_node(num_cpus=8)
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        nodes = ray.get([on_this_node(node).remote() for _ in range(4)])
        answer["same"] = {ray.get_runtime_context().get_node_id()} == set(nodes)
        thread = threading.Thread(target=_wait, args=(on_this_node(node), None, Reports()))
        thread.start()
        thread.join()
    except ConfigError as error:
        answer["error"] = str(error)
    ray.shutdown()
    cluster.shutdown()
print("RESULT", json.dumps(answer))
"""


@pytest.mark.slow
def test_tasks_stay_on_the_node_of_the_command_or_are_refused_where_it_has_no_cpu():
    """A run may be started from any thread."""
    done = run_command(sys.executable, "-c", SCRIPT)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("RESULT"))
    answer = json.loads(line.removeprefix("RESULT"))
    assert "--num-cpus 0" in answer.pop("error")
    assert answer == {"same": True, "failed": []}
