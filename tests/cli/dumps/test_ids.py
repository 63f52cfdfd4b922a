"""Every id that a command prints selects the same thing in every other command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rg_env.cli import app
from rg_env.dump import open_run

SAMPLE = Path(__file__).parents[3] / "dumps" / "sample"
GROUP = next(group for group in open_run(SAMPLE).groups() if group.outcome == "mixed")
CONDITIONS = {
    "group": f"group_id = '{GROUP.group_id}'",
    "item": f"item = '{GROUP.item}'",
    "run": f"run_id = '{GROUP.run_id}' AND uid = '{GROUP.uid}'",
}
COMMANDS = {
    "stats": (["stats"], "1 group, 8 rollouts"),
    "show": (["show"], f"== {GROUP.group_id}\n"),
    "signs": (["signs"], "8 responses read"),
    "report": (["report", "--out", "OUT/report.html"], "report.html: "),
    "export": (["export", "sft", "--out", "OUT/sft.jsonl"], "from 1 group with 8 rollouts"),
    "rescore": (["rescore", "--workers", "1"], "8 rollouts scored again, 0 changed"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_an_id_selects_its_group(name, tmp_path):
    words, says = COMMANDS[name]
    for condition in CONDITIONS.values() if name != "rescore" else [CONDITIONS["group"]]:
        args = [word.replace("OUT", str(tmp_path)) for word in words]
        force = ["--force"] if "--out" in args else []
        done = CliRunner().invoke(app, ["dumps", *args, str(SAMPLE), "--where", condition, *force])
        assert done.exit_code == 0 and says in done.stdout, (condition, done.output)


@pytest.mark.parametrize("name", ["chain_sum-eval-7-3@0.25", "20261123-005303-ab:1:eval:3:chain_sum-eval-7-3@0.25#1"])
def test_the_id_of_an_item_or_group_is_scored_with_default_options(name):
    done = CliRunner().invoke(app, ["score", name, "--json"])
    assert json.loads(done.stdout)["item"] == "chain_sum-eval-7-3@0.25"
    assert done.stderr.startswith("rg-env: with the default options of chain_sum; ")
