"""A server that `--model` starts: what is said when it fails, and that it ends with the command in every way.

The processes are real; `scripted_command` says what stands in for the model. `tests/e2e/test_export.py` and
`tests/vllm` evaluate real models.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from rg_env.dump import open_run
from tests.evaluate.server import wait_for_groups

ROOT = Path(__file__).parents[2]
GROUPS = 12
PATIENCE = 280
"""Seconds; a busy machine takes a minute to start Python with all imports."""


@pytest.fixture
def run(tmp_path):
    """Starts `rg-env collect` with a scripted server; its output is in files."""
    started = []
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup` would have the command ignore it, too

    def start(mode, *more):
        module = (sys.executable, "-m", "tests.evaluate.scripted_command", mode)
        options = ("--model", "m", "--tasks", "gcd", "--groups", str(GROUPS), "--samples", "2", "--retries", "2")
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        environment["OPENAI_API_KEY"], environment["http_proxy"] = "sk-secret", "http://127.0.0.1:9"
        output = (tmp_path / "output.txt").open("a")
        command = [*module, "collect", *options, "--out", str(tmp_path / "dump"), *more]
        started.append(subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output))
        return started[-1]

    yield start
    signal.signal(signal.SIGHUP, before)
    for process in started:
        process.kill()


def server_of(process):
    """The server and its child, once it answers: when the first groups are in the ledger, or at once."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        children = psutil.Process(process.pid).children(recursive=True)
        servers = [child for child in children if "--port" in child.cmdline()]
        if servers and servers[0].children():
            return [*servers, *servers[0].children()]
        time.sleep(0.05)
    raise AssertionError("no server")


def gone(processes):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes):
            return True
        time.sleep(0.1)
    return False


def logs(folder):
    return list(folder.glob("rg_env-server-*.log"))


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent ended")
def test_a_run_that_is_killed_and_whose_server_dies_is_completed(run, tmp_path):
    dump, output = tmp_path / "dump", tmp_path / "output.txt"
    process = run("answers", "--concurrency", "1")
    server, child = server_of(process)
    wait_for_groups(dump, 1)
    process.kill()
    try:
        assert gone([server])
    finally:
        child.kill()  # vLLM ends its own children when it is asked to end

    process = run("dies", "--resume")
    servers = server_of(process)
    assert process.wait(PATIENCE) == 1
    assert "scripted ended with exit code 1: torch.OutOfMemoryError: no memory is left" in output.read_text()
    assert f"--resume --out {dump} continues" in output.read_text()
    assert gone(servers)
    recorded = list(open_run(dump).all_attempts().ledger())
    assert 0 < len(recorded) < GROUPS
    assert all(rollout.status != "no_response" for group in recorded for rollout in group.rollouts)

    kept = logs(tmp_path)
    process = run("answers", "--resume")
    servers = server_of(process)
    assert process.wait(PATIENCE) == 0, output.read_text()
    assert gone(servers)
    assert logs(tmp_path) == kept, "the log of a server that did its work is removed"
    ledger = list(open_run(dump).all_attempts().ledger())
    assert len(ledger) == len({group.item for group in ledger}) == GROUPS
    assert run("refuses", "--resume").wait(PATIENCE) == 0, "no server is started where nothing is left to do"


def test_a_server_that_does_not_start_is_one_line(run, tmp_path):
    assert run("refuses").wait(PATIENCE) == 1
    lines = (tmp_path / "output.txt").read_text().splitlines()
    assert "scripted ended with exit code 3: OSError: m is not a model that is known" in lines[-1]
    (log,) = logs(tmp_path)
    assert lines[-1].endswith(f"log: {log}")
    assert not any(line.startswith(("Traceback", "  File")) for line in lines)


@pytest.mark.long
def test_a_closed_terminal_stops_the_server(run, tmp_path):
    process = run("answers", "--concurrency", "1")
    servers = server_of(process)
    wait_for_groups(tmp_path / "dump", 1)
    process.send_signal(signal.SIGHUP)
    assert process.wait(PATIENCE) == 129, (tmp_path / "output.txt").read_text()
    assert gone(servers)
    assert not logs(tmp_path)
    assert "Traceback" not in (tmp_path / "output.txt").read_text()
