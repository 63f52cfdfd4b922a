"""The built wheel in an environment of its own is all that `score` and `attack` need, and with an extra `serve` and
`--endpoint`.
"""

import json
import os
import re
import subprocess
import sys
import urllib.request

import pytest

from tests.evaluate.server import completion, serving
from tests.running import ROOT, program, run_command

# The commands run in a new environment, without compiled modules.
pytestmark = [pytest.mark.long, pytest.mark.timeout(950)]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The folder of an environment that has the wheel and what it declares."""
    dist = tmp_path_factory.mktemp("dist")
    folder = tmp_path_factory.mktemp("installed") / "venv"
    uv = ROOT / "scripts" / "uv.sh"
    run_command(uv, "build", "--quiet", "--wheel", "--python", sys.executable, "--out-dir", dist, ROOT)
    (wheel,) = dist.glob("rg_env-*.whl")
    run_command(uv, "venv", "--quiet", "--python", sys.executable, folder)
    python = folder / "bin" / "python"
    run_command(uv, "pip", "install", "--quiet", "--python", python, wheel)
    # Before the extras are there: each command names its own.
    model = "--endpoint http://127.0.0.1:9/v1 --model none"
    for extra, command in [
        ("serve", "serve"),
        ("endpoints", f"eval {model}"),
        ("endpoints", f"collect {model} --groups 1 --out {folder}/out"),
    ]:
        done = run_command(folder / "bin" / "rg-env", *command.split(), check=False)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert f"pip install '.[{extra}]'" in done.stderr
    run_command(uv, "pip", "install", "--quiet", "--python", python, f"{wheel}[endpoints,serve]")
    return folder


@pytest.fixture
def run(environment, tmp_path):
    """Starts `rg-env` of that environment in an empty folder."""
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}

    def run(*arguments):
        return subprocess.Popen(
            [environment / "bin" / "rg-env", *arguments],
            cwd=tmp_path,
            env=variables,
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


def test_an_endpoint_needs_no_trainer(environment, tmp_path):
    """Collect, resume, evaluate, and read the dump; nothing heavy is imported."""
    installed = {path.name for path in (environment / "lib").glob("python*/site-packages/*")}
    assert "rg_env" in installed
    assert not installed & {"torch", "ray", "skyrl", "transformers"}
    with serving(lambda number, body: completion("<think>x</think><answer>1</answer>")) as server:
        model = ("--endpoint", server.url, "--model", "m", "--samples", "2", "--tasks", "gcd")
        commands = [
            ("collect", *model, "--groups", "3", "--out", tmp_path / "dump"),
            ("collect", *model, "--groups", "3", "--out", tmp_path / "dump", "--resume"),
            ("eval", *model, "--out", tmp_path / "eval"),
            ("dumps", "stats", tmp_path / "dump"),
            ("dumps", "validate", tmp_path / "dump", tmp_path / "eval"),
            ("dumps", "rescore", tmp_path / "eval"),
            ("eval", "--help"),
        ]
        _, *command = program("light_commands", json.dumps(commands, default=str))
        run_command(environment / "bin" / "python", *command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)})
