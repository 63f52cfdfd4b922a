"""`--endpoint` imports nothing of the extras. `tests/test_wheel.py` tries it in an environment without them."""

import json
import sys
from pathlib import Path

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
