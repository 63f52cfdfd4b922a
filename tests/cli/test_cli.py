"""`rg-env` as a person types it: answers on standard output, remarks on standard error, exit codes 0, 1, 2."""

import json
import os
import re
import runpy
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from rg_env.base.errors import RGEnvError
from rg_env.cli import app
from rg_env.dump import open_run
from rg_env.dump.files import list_files
from rg_env.tasks import list_tasks
from tests.documents import ROOT
from tests.dump.records import write_record

SAMPLE = ROOT / "dumps" / "sample"


def invoke(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


def test_tasks(monkeypatch):
    tasks = json.loads(invoke("tasks", "--json").stdout)
    assert len(tasks) == 105
    assert {"name", "category", "in_default_mix", "soundness", "reason"} <= set(tasks[0])
    assert all(task["reason"] for task in tasks if task["soundness"] == "unsound")
    monkeypatch.setattr("rg_env.base.output._PIPE_WIDTH", 100)
    shown = invoke("tasks").stdout
    table, _, legend = shown.partition("105 tasks, 92 in the default mix")
    assert legend and max(map(len, shown.splitlines())) <= 100
    assert "unaudited" not in table and table.count(" audited") > 50
    assert all(task.name in table and task.category in table for task in list_tasks())


@pytest.mark.parametrize(
    ("response", "options", "violation", "base_score"),
    [
        ("<answer>{}</answer>", (), "no_think", 0.0),
        ("<answer>{}</answer>" + "x" * 300, (), "no_think", 0.0),
        ("<Answer>{}</Answer>", ("--format", "lenient"), None, 1.0),
    ],
)
def test_score_shows_every_number_and_names_the_violation(response, options, violation, base_score):
    command = ("score", "chain_sum-train-1-0", "--json")
    answer = json.loads(invoke(*command).stdout)["answer"]
    shown = json.loads(invoke(*command, *options, "--response", response.format(answer)).stdout)
    assert (shown["violation"], shown["base_score"], shown["status"]) == (violation, base_score, "ok")
    assert shown["raw_score"] == (None if violation else 1.0)
    assert violation or shown["tagged_score"] < 1.0


@pytest.mark.parametrize(("words", "form"), [((), "<think>…</think><answer>"), (("--format", "lenient"), "<answer>")])
def test_a_response_without_the_format_is_told_the_format(words, form):
    shown = invoke("score", "chain_sum-train-1-0", "--response", "4", *words).stdout
    assert f"; the format is {form}…</answer>" in shown


def test_the_id_of_an_item_or_group_is_scored():
    item = "chain_sum-eval-7-3@0.25"
    for name in (item, f"20261123-005303-ab:1:eval:3:{item}#1"):
        assert json.loads(invoke("score", name, "--json").stdout)["item"] == item
    refused = invoke("score", "gcd~01234567-eval-7-3")
    assert "its run gave gcd options of its own" in str(refused.exception)


def test_an_id_selects_its_group_in_every_command(tmp_path):
    group = next(group for group in open_run(SAMPLE).groups() if group.outcome == "mixed")
    conditions = [
        f"group_id = '{group.group_id}'",
        f"item = '{group.item}'",
        f"run_id = '{group.run_id}' AND uid = '{group.uid}'",
    ]
    for words, says in (
        (["stats"], "1 group, 8 rollouts"),
        (["show"], f"== {group.group_id}\n"),
        (["signs"], "8 responses read"),
        (["report", "--out", tmp_path / "report.html", "--force"], "report.html: "),
        (["export", "sft", "--out", tmp_path / "sft.jsonl", "--force"], "from 1 group with 8 rollouts"),
        (["rescore", "--workers", "1"], "8 rollouts scored again, 0 changed"),
    ):
        for condition in conditions if words[0] != "rescore" else conditions[:1]:
            done = invoke("dumps", *words, SAMPLE, "--where", condition)
            assert done.exit_code == 0 and says in done.stdout, (words, condition, done.output)


def test_dataset_writes_what_it_says_and_replaces_nothing_by_accident(tmp_path):
    out = tmp_path / "eval.parquet"
    out.write_text("valuable")
    arguments = ("dataset", "--out", out, "--rows", 2, "--split", "eval", "--tasks", "chain_sum,lcm")
    refused = invoke(*arguments).exception
    assert isinstance(refused, RGEnvError) and "--force" in str(refused)
    assert out.read_text() == "valuable"
    done = invoke(*arguments, "--force", "--complexity", "0.5")
    assert done.exit_code == 0 and "4 rows" in done.stdout
    assert out.read_bytes()[:4] == b"PAR1"


def test_validate_says_where_what_and_what_to_do(tmp_path):
    write_record(tmp_path)
    done = invoke("dumps", "validate", tmp_path)
    assert done.exit_code == 0 and "7 ledger lines, 6 texts: no problems found" in done.stdout
    torn = list_files(tmp_path)[0].path
    torn.write_bytes(torn.read_bytes()[:-9])
    done = invoke("dumps", "validate", tmp_path)
    assert done.exit_code == 1
    assert done.stdout.startswith(f"{torn.name}, line 2: torn or joined") and "(readers skip it)" in done.stdout
    shown = json.loads(invoke("dumps", "validate", tmp_path, "--json").stdout)
    assert (shown["good"], shown["counts"]) == (False, {"corrupt_line": 1, "no_text": 1})
    finding = shown["findings"][0]
    assert (finding["file"], finding["line"], bool(finding["advice"])) == (torn.name, 2, True)


def run_without_reader(*words):
    """The exit code of a command whose reader is gone, and what it says on standard error."""
    words = [sys.executable, "-m", "rg_env", *map(str, words)]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(words, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        return process.wait(), process.stderr.read()


def test_a_reader_that_stops_reading_is_no_error(tmp_path):
    for command in (["validate", SAMPLE], ["show", SAMPLE, "--every-rollout"], ["stats", SAMPLE]):  # a table, too
        assert run_without_reader("dumps", *command) == (0, b"")
    write_record(tmp_path)
    torn = list_files(tmp_path)[0].path
    torn.write_bytes(torn.read_bytes()[:-9])
    assert run_without_reader("dumps", "validate", tmp_path) == (1, b"")


def test_a_command_without_standard_output_ends_as_usual():
    words = ["sh", "-c", '"$@" >&-', "-", sys.executable, "-m", "rg_env", "dumps", "stats", SAMPLE]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    words[6:] = ["rg_env", "train", "no_such.yaml"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), done.stderr


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
