"""The built wheel is all that `score`, `serve` and `attack` need: no checkout, no extra."""

import json
import os
import re
import subprocess
import sys
import urllib.request

import pytest

from tests.running import ROOT

# Each command starts in a new environment, without compiled modules.
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def rg_env(tmp_path_factory):
    """Returns `rg-env` of a wheel in an environment of its own, as a command that runs in an empty folder."""
    dist = tmp_path_factory.mktemp("dist")
    uv = [ROOT / "scripts" / "uv.sh"]
    subprocess.run(
        [*uv, "build", "--quiet", "--wheel", "--python", sys.executable, "--out-dir", dist, ROOT],
        check=True,
        timeout=200,
    )
    (wheel,) = dist.glob("rg_env-*.whl")
    return [*uv, "tool", "run", "--quiet", "--isolated", "--python", sys.executable, "--from", wheel, "rg-env"]


@pytest.fixture
def run(rg_env, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}

    def run(*arguments):
        return subprocess.Popen(
            [*rg_env, *arguments],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return run


def test_a_wheel_scores_and_attacks(run):
    output, errors = run("score", "gcd-train-42-0", "--response", "<think>x</think><answer>1</answer>").communicate(
        timeout=200
    )
    assert "base_score: 0.0" in output, errors
    output, errors = run("attack", "--tasks", "gcd", "--items", "3").communicate(timeout=200)
    assert "gcd" in output, errors


def test_a_wheel_serves(run):
    server = run("serve", "--port", "0")
    try:
        line = server.stdout.readline()
        assert line, server.stderr.read()
        url = re.search(r"http://\S+", line).group()
        with urllib.request.urlopen(f"{url}/tasks", timeout=60) as reply:
            assert "gcd" in json.dumps(json.load(reply))
    finally:
        server.terminate()
        server.communicate(timeout=60)
