"""One vLLM server for all tests in this folder. It ends with them, even if they are killed."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.e2e.conftest import RG
from tests.running import ROOT

STARTS_WITHIN = 600


def pytest_collection_modifyitems(config, items):
    """Only `-m vllm` runs them: vLLM lives in an environment of its own."""
    if "vllm" in config.getoption("markexpr"):
        return
    here = Path(__file__).parent
    left_out = [item for item in items if here in item.path.parents]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if here not in item.path.parents]


def pytest_configure(config):
    if "vllm" in config.getoption("markexpr"):
        signal.signal(signal.SIGTERM, lambda *_: pytest.exit("terminated"))  # so that fixtures are torn down


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running_server(model, log, *options):
    """A vLLM server in a process group of its own; yields its address. No process of the group outlives the block."""
    port = free_port()
    command = [str(ROOT / "scripts" / "serve_vllm.sh"), str(model), str(port), *options]
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "VLLM_PYTHON": sys.executable, "HF_HUB_OFFLINE": "1"},
            start_new_session=True,
        )
    reaper = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("reaper.py")), str(process.pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_healthy(process, url, log)
        yield url
    finally:
        _stop_group(process)
        reaper.kill()
        reaper.communicate()


def _wait_until_healthy(process, url, log):
    deadline = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < deadline:
        assert process.poll() is None, f"vLLM ended with {process.returncode}:\n{log.read_text()[-6000:]}"
        try:
            urllib.request.urlopen(f"{url}/health", timeout=2).close()
            return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(f"vLLM did not start within {STARTS_WITHIN} s:\n{log.read_text()[-6000:]}")


def members_of(group):
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def _stop_group(process):
    members = members_of(process.pid)
    for signum, patience in ((signal.SIGTERM, 30), (signal.SIGKILL, 10)):
        try:
            os.killpg(process.pid, signum)
        except ProcessLookupError:
            break
        try:
            process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            continue
    _, alive = psutil.wait_procs(members, timeout=10)
    assert not alive, alive


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """nano on vLLM. Training runs leave their weights on it: a test that needs nano's own has to put them back."""
    with running_server("nano", tmp_path_factory.mktemp("vllm") / "server.log") as url:
        yield url


@pytest.fixture
def run(server, tmp_path):
    """Arguments of a run on that server, in a folder of its own; the configuration comes before them."""
    engine = "generator.inference_engine"
    return [
        f"{engine}.external_proxy_url={server}",
        f"{engine}.external_server_urls=[{server}]",
        f"trainer.ckpt_path={tmp_path}/checkpoints",
        f"trainer.export_path={tmp_path}/exports",
        f"trainer.log_path={tmp_path}/logs",
        f"{RG}.dump_dir={tmp_path}/dumps",
        f"{RG}.dump_other_rollouts=true",
    ]
