"""The task of a run is on the node where the command was started, in a cluster of two nodes on this machine."""

import inspect
import json

import pytest
from ray._private import node

from rg_env.base.errors import RGEnvError
from rg_env.skyrl.launch import SLOW_START, explaining_a_slow_start
from tests.running import run_program


def test_a_node_that_is_not_ready_in_time_names_the_variable_that_gives_it_more(monkeypatch):
    """Ray waits for at least 30 s, so its error is raised here; its words are looked up in Ray itself."""
    assert SLOW_START in inspect.getsource(node)
    for waited, more in ((30, 300), (300, 3000)):
        monkeypatch.setenv("RAY_raylet_start_wait_time_s", str(waited))
        says = f"not ready after {waited} s: .*RAY_raylet_start_wait_time_s={more} in"
        with pytest.raises(RGEnvError, match=says), explaining_a_slow_start():
            raise Exception(f"{SLOW_START}. This could happen because some of the raylet failed to startup")
    with pytest.raises(OSError, match="other"), explaining_a_slow_start():
        raise OSError("other")


@pytest.mark.long
@pytest.mark.slow
def test_tasks_stay_on_the_node_of_the_command_or_are_refused_where_it_has_no_cpu():
    """A run may be started from any thread."""
    done = run_program("two_nodes")
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("RESULT"))
    answer = json.loads(line.removeprefix("RESULT"))
    assert "--num-cpus 0" in answer.pop("error")
    assert answer == {"same": True, "failed": []}
