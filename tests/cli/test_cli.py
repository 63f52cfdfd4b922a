"""`rg-env` as a person types it: answers on standard output, one line on standard error, exit codes 0, 1, 2."""

import json
import os
import re
import runpy
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from rg_env.cli import app
from rg_env.errors import RGEnvError
from rg_env.tasks import list_tasks
from tests.documents import ROOT

SUM = ["chain_sum", "--seed", "1"]


def invoke(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


def test_tasks_as_json_have_what_the_contract_names():
    tasks = json.loads(invoke("tasks", "--json").stdout)
    assert len(tasks) == 105
    assert {"name", "category", "in_default_mix", "soundness", "reason"} <= set(tasks[0])
    assert all(task["reason"] for task in tasks if task["soundness"] == "unsound")


def test_tasks_fit_100_columns_and_none_of_them_is_unaudited(monkeypatch):
    monkeypatch.setattr("rg_env.output._PIPE_WIDTH", 100)
    shown = invoke("tasks").stdout
    table, _, legend = shown.partition("105 tasks, 95 in the default mix")
    assert legend and max(map(len, shown.splitlines())) <= 100
    assert "unaudited" not in table and table.count(" audited") > 50
    assert all(task.name in table and task.category in table for task in list_tasks())


@pytest.mark.parametrize(
    ("response", "options", "violation", "base_score"),
    [
        ("<think>t</think><answer>{}</answer>", (), None, 1.0),
        ("<answer>{}</answer>", (), "no_think", 0.0),
        ("<Answer>{}</Answer>", ("--format", "lenient"), None, 1.0),
    ],
)
def test_score_shows_every_number_and_names_the_violation(response, options, violation, base_score):
    answer = json.loads(invoke("score", *SUM, "--json").stdout)["answer"]
    shown = json.loads(invoke("score", *SUM, "--json", *options, "--response", response.format(answer)).stdout)
    assert (shown["violation"], shown["base_score"], shown["status"]) == (violation, base_score, "ok")
    assert shown["raw_score"] == (None if violation else 1.0)
    assert violation or shown["tagged_score"] < 1.0


def test_dataset_writes_what_it_says_and_replaces_nothing_by_accident(tmp_path):
    out = tmp_path / "eval.parquet"
    out.write_text("valuable")
    arguments = ("dataset", "--out", out, "--rows", 2, "--split", "eval", "--tasks", "chain_sum,lcm")
    refused = invoke(*arguments).exception
    assert isinstance(refused, RGEnvError) and "--force" in str(refused)
    assert out.read_text() == "valuable"
    done = invoke(*arguments, "--force")
    assert done.exit_code == 0
    assert "4 rows" in done.stdout
    assert out.read_bytes()[:4] == b"PAR1"


def test_the_package_can_be_run_and_its_version_names_what_a_bug_report_needs(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["python -m rg_env", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("rg_env", run_name="__main__")
    assert not ended.value.code
    versions, imports, sandbox = capsys.readouterr().out.splitlines()
    assert re.match(r"rg-env 0\.1\.0, Python [\d.]+, reasoning-gym [\d.]+, skyrl [\d.]+", versions)
    assert imports == "reasoning_gym: can be imported"
    assert sandbox.startswith("sandbox: ")


def test_a_reasoning_gym_that_cannot_be_imported_is_one_line(tmp_path):
    (tmp_path / "reasoning_gym").mkdir()
    (tmp_path / "reasoning_gym" / "__init__.py").write_text("raise ImportError('libfoo.so is missing')")
    line = "reasoning_gym cannot be imported (ImportError: libfoo.so is missing); install it again"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for command, code in (("tasks", 2), ("--version", 0)):
        words = [sys.executable, "-m", "rg_env", command]
        done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (code, f"rg-env: {line}\n" if code else "")
    assert line in done.stdout.splitlines()


def complete(line):
    """What bash offers after a line."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    env = {"_RG_ENV_COMPLETE": "complete_bash", **words}
    return CliRunner().invoke(app, [], prog_name="rg-env", env=env).stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("rg-env du", ["dumps"]),
        ("rg-env dumps re", ["report", "rescore"]),
        ("rg-env dumps stats --again", ["--against", "--against-where"]),
        ("rg-env dumps stats x --by p", ["phase"]),
        ("rg-env eval --suite rg_", ["rg_easy", "rg_hard"]),
        ("rg-env train configs/", []),
    ],
)
def test_the_shell_completes_commands_options_and_choices(line, offered):
    assert complete(line) == offered
