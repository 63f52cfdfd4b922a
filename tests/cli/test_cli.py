"""`rg-env` as a person types it: answers on standard output, one line on standard error, exit codes 0, 1, 2."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from rg_env.cli import app
from rg_env.errors import RGEnvError

SUM = ["chain_sum", "--seed", "1"]


def invoke(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


def answer():
    return json.loads(invoke("score", *SUM, "--json").stdout)["answer"]


def test_tasks_as_json_have_what_the_contract_names():
    tasks = json.loads(invoke("tasks", "--json").stdout)
    assert len(tasks) == 105
    assert {"name", "category", "in_default_mix", "soundness", "reason"} <= set(tasks[0])
    assert all(task["state"] == "ok" for task in tasks)
    assert all(task["reason"] for task in tasks if task["soundness"] == "unsound")


def test_score_shows_every_number():
    shown = json.loads(
        invoke("score", *SUM, "--json", "--response", f"<think>t</think><answer>{answer()}</answer>").stdout
    )
    assert shown["raw_score"] == shown["base_score"] == 1.0
    assert shown["tagged_score"] < 1.0
    assert shown["status"] == "ok"


def test_score_names_the_violation():
    shown = json.loads(invoke("score", *SUM, "--json", "--response", f"<answer>{answer()}</answer>").stdout)
    assert shown["violation"] == "no_think"
    assert shown["raw_score"] is None
    assert shown["base_score"] == 0.0


def test_dataset_writes_what_it_says(tmp_path):
    out = tmp_path / "eval.parquet"
    done = invoke("dataset", "--out", out, "--rows", 2, "--split", "eval", "--tasks", "chain_sum,lcm")
    assert done.exit_code == 0
    assert "4 rows" in done.stdout
    assert out.stat().st_size > 0


@pytest.mark.parametrize(
    "args",
    [
        ("score", "chain_sum", "--index", "-1"),
        ("dataset", "--out", "x.parquet", "--rows", "0"),
        ("dataset", "--out", "x.parquet", "--split", "test"),
        ("dumps", "stats"),
        ("nonsense",),
    ],
)
def test_misuse_is_exit_code_2(args):
    assert invoke(*args).exit_code == 2


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("score", "chain_sun"), "chain_sum"),
        (("dataset", "--out", "x.csv"), ".parquet"),
        (("dumps", "stats", "no/such/folder"), "no/such/folder"),
    ],
)
def test_what_a_person_can_mend_is_one_line(args, says):
    error = invoke(*args).exception
    assert isinstance(error, RGEnvError)
    assert says in str(error)
    assert "\n" not in str(error)


def test_the_process_prints_one_line_and_exits_2():
    command = [sys.executable, "-c", "from rg_env.cli import main; main()", "score", "chain_sun"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("rg-env: unknown task 'chain_sun'")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("module", ["rg_env.cli", "rg_env.dump", "rg_env.analysis", "rg_env.scoring", "rg_env.tasks"])
def test_the_light_parts_import_nothing_heavy(module):
    probe = f"import sys, {module}; print([m for m in ('torch', 'ray', 'skyrl', 'skyrl_gym') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_score_in_the_lenient_format():
    arguments = ("score", *SUM, "--json", "--format", "lenient", "--response", f"<Answer>{answer()}</Answer>")
    shown = json.loads(invoke(*arguments).stdout)
    assert (shown["violation"], shown["base_score"]) == (None, 1.0)
