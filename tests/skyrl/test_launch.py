"""The task of a run is on the node where the command was started, in a cluster of two nodes on this machine."""

import json
import sys

import pytest

from tests.e2e.conftest import run_command

SCRIPT = """
import json, os, sys, threading
from pathlib import Path

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
import ray
from ray.cluster_utils import Cluster

from rg_env.errors import ConfigError
from rg_env.skyrl.launch import _wait, on_this_node
from rg_env.terminal.reports import Reports

cpus = int(sys.argv[1])
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": cpus, "include_dashboard": False})
cluster.add_node(num_cpus=8)
cluster.wait_for_nodes()
ray.init(address=cluster.address, log_to_driver=False)


@ray.remote(num_cpus=1)
def node(cfg=None, reports=None):
    return ray.get_runtime_context().get_node_id()


try:
    nodes = ray.get([on_this_node(node).remote() for _ in range(4)])
    answer = {"same": {ray.get_runtime_context().get_node_id()} == set(nodes), "failed": []}
    threading.excepthook = lambda failure: answer["failed"].append(str(failure.exc_value))
    thread = threading.Thread(target=_wait, args=(on_this_node(node), None, Reports()))
    thread.start()
    thread.join()
except ConfigError as error:
    answer = {"error": str(error)}
print("RESULT", json.dumps(answer))
ray.shutdown()
cluster.shutdown()
"""


def result(cpus):
    done = run_command(sys.executable, "-c", SCRIPT, cpus)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("RESULT"))
    return json.loads(line.removeprefix("RESULT"))


@pytest.mark.slow
def test_tasks_stay_on_the_node_of_the_command():
    """A run may be started from any thread."""
    assert result(1) == {"same": True, "failed": []}


@pytest.mark.slow
def test_a_node_without_cpus_is_refused_instead_of_waiting_forever():
    assert "--num-cpus 0" in result(0)["error"]
