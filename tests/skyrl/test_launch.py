"""The task of a run is on the node where the command was started, in a cluster of two nodes on this machine."""

import json

import pytest

from tests.running import run_program


@pytest.mark.slow
def test_tasks_stay_on_the_node_of_the_command_or_are_refused_where_it_has_no_cpu():
    """A run may be started from any thread."""
    done = run_program("two_nodes")
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("RESULT"))
    answer = json.loads(line.removeprefix("RESULT"))
    assert "--num-cpus 0" in answer.pop("error")
    assert answer == {"same": True, "failed": []}
