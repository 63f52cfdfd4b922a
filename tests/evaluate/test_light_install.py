"""`--endpoint` without any extra: in a fresh environment that has only the declared dependencies."""

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.evaluate.server import completion, serving
from tests.running import program, run_command

ROOT = Path(__file__).parents[2]


def try_everything(python, folder):
    """Collect, resume, evaluate, and read the dump; nothing heavy is imported."""
    with serving(lambda number, body: completion("<think>x</think><answer>1</answer>")) as server:
        model = ("--endpoint", server.url, "--model", "m", "--samples", "2", "--tasks", "gcd")
        commands = [
            ("collect", *model, "--groups", "3", "--out", folder / "dump"),
            ("collect", *model, "--groups", "3", "--out", folder / "dump", "--resume"),
            ("eval", *model, "--out", folder / "eval"),
            ("dumps", "stats", folder / "dump"),
            ("dumps", "validate", folder / "dump", folder / "eval"),
            ("dumps", "rescore", folder / "eval"),
            ("eval", "--help"),
        ]
        _, *command = program("light_commands", json.dumps(commands, default=str))
        run_command(python, *command, cwd=folder, env={"PYTHONPATH": str(ROOT)})


def test_nothing_heavy_is_imported(tmp_path):
    try_everything(sys.executable, tmp_path)


@pytest.mark.long
def test_a_fresh_environment_without_extras(tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", ROOT], check=True, timeout=800)
    installed = subprocess.run([python, "-m", "pip", "list"], check=True, capture_output=True, text=True).stdout
    assert not {line.split()[0] for line in installed.splitlines() if line} & {"torch", "ray", "skyrl", "transformers"}
    try_everything(python, tmp_path)
