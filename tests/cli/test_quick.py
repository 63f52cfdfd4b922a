"""A mistake on the command line, and `--help` are answered without importing what takes seconds."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.documents import ROOT

MISTAKES = [
    ["stats"],
    ["train"],
    ["train", "no.yaml"],
    ["train", "configs/quickstart.yaml", "trainer.epoch=1"],
    ["train", "configs/quickstart.yaml", "trainer.epochs=many"],
    ["train", "configs/quickstart.yaml", "environment.skyrl_gym.rg_dump.tasks.nope=1"],
    ["train", "configs/quickstart.yaml", "environment.skyrl_gym.rg_dump.format=loose"],
    ["eval"],
    ["eval", "--model", "no/such/folder"],
    ["eval", "--resume", "--model", "nano"],
    ["eval", "--endpoint", "http://127.0.0.1:9/v1", "--model", "x", "--suite", "nope"],
    ["collect", "--groups", "3", "--out", "d"],
    ["score", "chain_sun"],
    ["tasks", "--levels", "nope"],
    ["dataset", "--out", "x.csv"],
    ["dataset", "--out", "no/such/folder/x.parquet"],
    ["dataset", "--out", "x.parquet", "--tasks", "nope"],
    ["attack", "--tasks", "nope"],
    ["dumps", "stats", "no/such/folder"],
    ["dumps", "export", "sft", "dumps/sample", "--out", "x.csv"],
    ["dumps", "show", "dumps/sample", "--plain", "--where", "nope = 1"],
    ["dumps", "replay", "dumps/sample", "nope"],
    ["dumps", "import", "reasoning-gym-eval", "x"],
    ["dumps", "export", "grpo", "x", "--out", "x.jsonl"],
]
SLOW = ("torch", "ray", "transformers", "vllm", "reasoning_gym", "sympy", "datasets", "textual")
PROBE = f"""
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from rg_env.cli import main
from rg_env.errors import RGEnvError

def in_this_process(work, screen):
    try:
        work()
    except RGEnvError as error:
        screen.facts["error"] = str(error)
        return 2
    return 0

with redirect_stdout(io.StringIO()) as shown:
    sys.argv = ["rg-env", "dumps", "stats", "--help"]
    try:
        main()
    except SystemExit:
        assert "Usage" in shown.getvalue()
assert not any(name in sys.modules for name in ("polars", "pyarrow", "reasoning_gym", "textual", "orjson"))

import rg_env.train
rg_env.train.supervise = in_this_process

found = []
mistakes = {MISTAKES!r}
for mistake in mistakes:
    sys.argv = ["rg-env", *mistake]
    with redirect_stderr(io.StringIO()) as shown:
        try:
            main()
        except SystemExit as done:
            found.append([done.code, shown.getvalue(), [name for name in {SLOW!r} if name in sys.modules]])
print(json.dumps(found))
"""


def test_a_mistake_is_one_line_that_says_what_is_wrong_without_slow_imports():
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    shown = {}
    for mistake, (code, text, imported) in zip(MISTAKES, json.loads(done.stdout), strict=True):
        assert (code, text[:8], text.count("\n"), imported) == (2, "rg-env: ", 1, []), mistake
        shown[" ".join(mistake)] = text
    assert shown["score chain_sun"].startswith("rg-env: unknown task 'chain_sun'; did you mean chain_sum")
    assert shown["stats"] == "rg-env: no command 'stats'; did you mean `rg-env dumps stats`?\n"
