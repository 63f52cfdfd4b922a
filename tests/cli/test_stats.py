"""`rg-env dumps stats` as people type it."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from rg_env.cli import app
from rg_env.dump import DumpWriter, FileKind, open_run, to_line, write_manifest
from rg_env.dump.files import batch_name
from rg_env.dump.schema import StepRecord
from rg_env.errors import RGEnvError
from tests.analysis.samples import write_ledger
from tests.documents import ROOT
from tests.dump.records import RUN_ID, group


def stats(*args):
    return CliRunner().invoke(app, ["dumps", "stats", *map(str, args)])


@pytest.fixture
def folder(tmp_path):
    write_ledger(tmp_path / "dump", [group(k, [1.0, 0.0], step=k, task="gcd") for k in range(1, 9)])
    return tmp_path / "dump"


def test_for_people_and_for_machines(folder):
    done = stats(folder)
    assert done.exit_code == 0 and "50%" in done.stdout
    assert "8 groups, 16 rollouts · steps 1 to 8 · from the ledger" in done.stdout
    assert "pass_at_2" in stats(folder, "--details").stdout
    (row,) = json.loads(stats(folder, "--json").stdout)
    assert (row["task"], row["solve_rate"], row["pass_at_2"]) == ("gcd", 0.5, 1.0)
    assert (row["violation_counts"], row["status_counts"]) == ({}, {"ok": 16})
    (row,) = json.loads(stats(folder, "--json", "--where", "step > 4").stdout)
    assert (row["groups"], row["solve_rate"]) == (4, 0.5)


def test_the_table_of_a_run_fits_80_columns_without_a_break_in_a_name():
    """Its intervals are wide and its tasks have long names, which leaves one space between columns."""
    done = stats(ROOT / "dumps" / "sample")
    table = done.stdout.partition("\n")[2].partition("phantoms")[0].splitlines()
    assert max(map(len, table)) <= 80
    assert sum("spell_backward " in line for line in table) == 2


def test_only_the_columns_asked_for(folder):
    (row,) = json.loads(stats(folder, "--json", "--columns", "mean_raw_score,solve_rate_low").stdout)
    assert [*row] == ["run_id", "run", "phase", "environment", "task", "mean_raw_score", "solve_rate_low"]
    first, *_ = json.loads(stats(folder, "--json", "--columns", "mean_reward", "--by", "step").stdout)
    assert [*first] == ["run_id", "run", "phase", "environment", "step", "mean_reward"]
    assert "mean_tagged_score" in stats(folder, "--columns", "mean_tagged_score").stdout
    compared = json.loads(stats(folder, "--against", folder, "--json", "--columns", "mean_reward").stdout)
    assert {row["measure"] for row in compared["rows"]} == {"mean_reward"}


def test_two_runs(folder, tmp_path):
    write_ledger(tmp_path / "other", [group(k, [1.0, 1.0], task="gcd") for k in range(1, 10)])
    done = stats(folder, "--against", tmp_path / "other")
    assert "-50 points" in done.stdout
    assert "8 questions are in both, of 8 and 9: only these are compared" in done.stdout
    assert "8 questions that" not in done.stdout  # half of the rollouts solve each
    shown = json.loads(stats(folder, "--against", tmp_path / "other", "--json").stdout)
    (total,) = (row for row in shown["rows"] if row["measure"] == "solve_rate" and "task" not in row)
    assert (total["difference"], total["questions"], shown["questions_shared"]) == (-0.5, 8, 8)
    assert {row["task"] for row in shown["rows"] if "task" in row} == {"gcd"}


def test_the_questions_that_only_one_side_solves_are_listed(tmp_path):
    for step, score in ((0, 0.0), (60, 1.0)):
        groups = [group(f"{step}-{k}", [score] * 2, item=f"q{k}", phase="eval", step=step) for k in range(8)]
        write_ledger(tmp_path / f"{step}", groups)
    done = stats(tmp_path / "0", "--against", tmp_path / "60")
    assert "-100 points *" in done.stdout
    says = "8 questions that the other side solves in at least half of its tries, and this one does not"
    assert says in done.stdout
    assert "20261121-053012-ab12:1:eval:0:60-0" in done.stdout
    assert "… and 3 more" in done.stdout


def test_several_runs_keep_the_order_given(tmp_path):
    for name, score in (("weak", 0.0), ("strong", 1.0)):
        write_ledger(tmp_path / name, [group(k, [score], run_id=name) for k in range(3)], name)
        write_manifest(tmp_path / name, name, {"attempt": 1, "model": name})
    for order in (["weak", "strong"], ["strong", "weak"]):
        folders = [tmp_path / name for name in order]
        done = stats(*folders, "--by", "category")
        assert (done.stdout.index("strong") < done.stdout.index("weak")) == (order[0] == "strong")
        rows = json.loads(stats(*folders, "--by", "phase", "--json").stdout)
        assert [(row["run"], row["solve_rate"]) for row in rows] == [(n, float(n == "strong")) for n in order]


def test_no_common_question_is_an_error(folder):
    error = stats(folder, "--against", "dumps/sample").exception
    assert isinstance(error, RGEnvError) and "no question is in both dumps" in str(error)


def test_bad_input_is_named_and_the_rest_is_counted(tmp_path):
    path = tmp_path / batch_name(FileKind.ROLLOUTS, RUN_ID, 0)
    good = [to_line(group(k)).decode() for k in range(3)]
    path.write_text(good[0] + good[1][:30] + "\n" + '{"some": "thing"}\n' + good[1] + good[2])
    done = stats(path, "--json")
    (row,) = json.loads(done.stdout)
    assert (done.exit_code, row["groups"]) == (0, 3)
    assert "0000.jsonl, line 2: torn" in done.stderr
    assert "0000.jsonl, line 3: not a record" in done.stderr
    assert "no ledger found" in done.stderr


def test_a_foreign_file_is_one_line(tmp_path):
    for content in ("", "\n\n", "no json\n", '{"some": "thing"}\n' * 2000, "[1]\n", "\0" * 100, "\xff"):
        ending = ".zst" if content.startswith("no json") else ""
        path = tmp_path / (batch_name(FileKind.ROLLOUTS, "foreign", 0) + ending)
        path.write_text(content, encoding="latin-1")
        error = stats(path).exception
        assert isinstance(error, RGEnvError)
        assert "\n" not in str(error) and str(path) in str(error)


def test_the_trainers_numbers_are_shown_by_step_without_those_of_abandoned_steps(tmp_path):
    for attempt, steps in ((1, (1, 2)), (2, (2,))):
        with DumpWriter(tmp_path, RUN_ID, attempt) as writer:
            for step in steps:
                writer.submit([group(f"{attempt}-{step}", attempt=attempt, step=step)])
                writer.submit([StepRecord(RUN_ID, attempt, step, ["policy/loss", "lr"], [attempt + step / 8, None])])
    rows = json.loads(stats(tmp_path, "--by", "step", "--json").stdout)
    assert [row["trainer"]["policy/loss"] for row in rows] == [1.125, 2.25]
    shown = stats(tmp_path, "--by", "step", "--details").stdout
    assert [re.findall(r"policy/loss +(\S+)", shown), re.findall(r"lr +(\S+)", shown)] == [
        ["1.125", "2.25"],
        ["–", "–"],
    ]
    assert sum(len(step.name) for step in open_run(tmp_path).all_attempts().steps()) == 6


@pytest.mark.parametrize("by", ["phase", "step", "level"])
@pytest.mark.parametrize("columns", ["", "solve_rate", "partial_credit_only,mean_reward_low"])
@pytest.mark.parametrize("output", [(), ("--details",), ("--json",)])
def test_every_output_takes_every_choice_of_columns(folder, output, columns, by):
    done = stats(folder, *output, "--by", by, *(["--columns", columns] if columns else []))
    assert (done.exit_code, done.exception) == (0, None)
    assert done.stdout
