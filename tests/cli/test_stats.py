"""`rg-env dumps stats` as people type it."""

from __future__ import annotations

import asyncio
import json
import random
import re

import pytest
from typer.testing import CliRunner

from rg_env.base.errors import RGEnvError
from rg_env.cli import app
from rg_env.dump import Attempt, DumpWriter, FileKind, open_run, to_line, write_manifest
from rg_env.dump.files import batch_name
from rg_env.dump.schema import StepRecord
from rg_env.page import build_report
from tests.analysis.reports import Report
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


def test_sets_of_questions_that_differ_are_named_and_so_is_the_reason(tmp_path):
    rows = {"a": [], "b": [4]}
    for name, missing in rows.items():
        asked = [group(k, [1.0], phase="eval", task="sums") for k in range(5) if k not in missing]
        other = [group(f"g{k}", [0.0], phase="eval", task="gcd") for k in range(3)]
        write_ledger(tmp_path / name / "same", [*asked, *other])
        noted = {"sums": {"eval": missing}} if missing else {}
        write_manifest(tmp_path / name / "same", RUN_ID, Attempt(attempt=1, model="m", questions_left_out=noted))
    done = stats(tmp_path / "a" / "same", "--against", tmp_path / "b" / "same")
    assert "7 questions are in both, of 8 and 7: only these are compared" in done.stdout
    assert "the two sides were asked different questions from sums (4 shared, of 5 and 4)" in done.stderr
    assert "the audit of the answers left out different rows of sums" in done.stderr
    shown = json.loads(stats(tmp_path / "a" / "same", "--against", tmp_path / "b" / "same", "--json").stdout)
    assert shown["questions_by_task"] == [
        {"task": "gcd", "this": 3, "other": 3, "shared": 3},
        {"task": "sums", "this": 5, "other": 4, "shared": 4},
    ]
    assert shown["tasks_with_other_rows_left_out"] == ["sums"]
    # Models and folders have the same names, so what was typed tells the sides apart.
    assert shown["this"] == f"m (same), evaluation after step 1, in {tmp_path / 'a' / 'same'}"
    assert shown["other"] == f"m (same), evaluation after step 1, in {tmp_path / 'b' / 'same'}"
    # The report has one run id once, so the other side gets its own.
    write_ledger(tmp_path / "c", [group(k, [1.0], run_id="c", phase="eval", task="sums") for k in range(3)], "c")
    notes = Report(build_report(open_run(tmp_path / "a" / "same", tmp_path / "c"))).summary["notes"]
    assert any("asked different questions: 3 are in both, of 8 and 3. Rates are over all" in note for note in notes)
    equal = stats(tmp_path / "a" / "same", "--against", tmp_path / "a" / "same")
    assert "different questions" not in equal.stderr


PAIRS = {
    "first minus a long run": ((0, 4, 8), (0, 20, 40, 60), 40),
    "another number of questions": ((0, 10), (0, 5, 10), 25),
    "an evaluation of a model": ((0, 30, 60), (None,), 40),
}


def evaluated(folder, run_id, steps, questions, seed):
    """A run whose solve rate rises with each evaluation; questions have one or two groups of unequal size."""
    draw = random.Random(seed)
    made = [group("t", [1.0, 0.0], run_id=run_id, step=1)]
    for number, step in enumerate(steps):
        for k in range(questions):
            for copy in range(1 + k % 2):
                scores = [float(draw.random() < 0.2 + 0.2 * number) for _ in range(2 + k % 3)]
                place = {"phase": "eval", "step": step, "call": number, "run_id": run_id}
                made.append(group(f"{number}-{k}-{copy}", scores, item=f"q{k}", task=("gcd", "lcm")[k % 2], **place))
    write_manifest(folder, run_id, Attempt(attempt=1, model=run_id))
    write_ledger(folder, made, run_id)


@pytest.mark.parametrize("pair", PAIRS)
def test_the_difference_of_two_runs_is_that_of_the_report(tmp_path, pair):
    steps, steps_other, questions = PAIRS[pair]
    for seed, (name, evaluations, number) in enumerate((("a", steps, 40), ("b", steps_other, questions))):
        (tmp_path / name).mkdir()
        evaluated(tmp_path / name, name, evaluations, number, seed)
    shown = json.loads(stats(tmp_path / "a", "--against", tmp_path / "b", "--json").stdout)
    report = Report(build_report(open_run(tmp_path / "a", tmp_path / "b"))).summary["comparisons"][0]
    compared = {(row.get("task", ""), row["measure"]): row for row in shown["rows"] if row["phase"] == "eval"}
    of_report = {("", row["measure"]): row["differences"][1] for row in report["totals"]}
    of_report |= {(row["task"], "solve_rate"): row["differences"][1] for row in report["tasks"]}
    assert {("", "solve_rate"), ("gcd", "solve_rate"), ("lcm", "solve_rate")} <= set(of_report)
    for key, difference in of_report.items():
        assert difference == pytest.approx({name: compared[key][name] for name in difference}, abs=1e-6), key
    # And of `stats A B`, where both have the same questions.
    rates = [
        row["solve_rate"]
        for row in json.loads(stats(tmp_path / "a", tmp_path / "b", "--by", "phase", "--json").stdout)
        if row["phase"] == "eval"
    ]
    total = compared["", "solve_rate"]
    assert (total["this"] == pytest.approx(rates[0])) is (questions == 40)
    assert total["difference"] == pytest.approx(total["this"] - total["other"])
    assert report["steps"] == [steps[-1], steps_other[-1]]


def test_a_comparison_names_the_evaluations_and_takes_conditions_and_steps(tmp_path):
    for name, steps in (("a", (0, 8)), ("b", (0, 30, 60))):
        (tmp_path / name).mkdir()
        evaluated(tmp_path / name, name, steps, 10, 0)
    sides = (tmp_path / "a", "--against", tmp_path / "b")
    done = stats(*sides)
    assert done.stdout.splitlines()[:2] == [
        "this:  a (a), evaluation after step 8",
        "other: b (b), evaluation after step 60",
    ]
    assert "this − other" in done.stdout
    shown = json.loads(stats(*sides, "--where", "phase = 'eval' AND step < 60", "--json").stdout)
    assert shown["other"] == "b (b), evaluation after step 30, phase = 'eval' AND step < 60"
    assert shown["evaluations_other"] == [{"run_id": "b", "environment": "rg_dump", "step": 30}]
    by_step = json.loads(stats(*sides, "--by", "step", "--json", "--columns", "solve_rate").stdout)["rows"]
    assert [(row["phase"], row.get("step")) for row in by_step if row["phase"] == "eval"] == [
        ("eval", None),
        ("eval", 0),
    ]


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
        write_manifest(tmp_path / name, name, Attempt(attempt=1, model=name))
    for order in (["weak", "strong"], ["strong", "weak"]):
        folders = [tmp_path / name for name in order]
        done = stats(*folders, "--by", "category")
        assert (done.stdout.index("strong") < done.stdout.index("weak")) == (order[0] == "strong")
        rows = json.loads(stats(*folders, "--by", "phase", "--json").stdout)
        assert [(row["run"], row["solve_rate"]) for row in rows] == [(n, float(n == "strong")) for n in order]


def test_the_head_says_what_was_counted_from_texts(tmp_path):
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        asyncio.run(writer.write([group(k, [1.0, 0.0]) for k in range(3)]))
    (ledger,) = tmp_path.glob("*ledger*")
    ledger.write_text("cut off")
    head = (
        "6 rollouts · steps 1 to 1 · from the ledger, which has not every group, and from the texts where it lacks one"
    )
    assert head in stats(tmp_path).stdout
    notes = Report(build_report(open_run(tmp_path))).summary["notes"]
    assert f"Statistics and charts come {head.partition(' · ')[2].partition(' · ')[2]}." in notes


def test_no_common_question_is_an_error(folder, tmp_path):
    error = stats(folder, "--against", "dumps/sample").exception
    assert isinstance(error, RGEnvError) and "no question is in both dumps, so" in str(error)
    write_ledger(tmp_path / "other", [group(k, task="gcd", phase="eval", environment="imported") for k in range(1, 4)])
    error = str(stats(folder, "--against", tmp_path / "other").exception)
    assert "3 questions as train rg_dump on this side and as eval imported on the other" in error


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
            if attempt == 2:  # SkyRL evaluates before it goes on from the checkpoint of step 1
                writer.submit([StepRecord(RUN_ID, attempt, 1, ["eval/all/avg_score"], [0.5])])
    rows = json.loads(stats(tmp_path, "--by", "step", "--json").stdout)
    assert [row["trainer"]["policy/loss"] for row in rows] == [1.125, 2.25]
    shown = stats(tmp_path, "--by", "step", "--details").stdout
    assert [re.findall(r"policy/loss +(\S+)", shown), re.findall(r"lr +(\S+)", shown)] == [
        ["1.125", "2.25"],
        ["–", "–"],
    ]
    assert sum(len(step.name) for step in open_run(tmp_path).all_attempts().steps()) == 7


@pytest.mark.parametrize("by", ["phase", "step", "level"])
@pytest.mark.parametrize("columns", ["", "solve_rate", "partial_credit_only,mean_reward_low"])
@pytest.mark.parametrize("output", [(), ("--details",), ("--json",)])
def test_every_output_takes_every_choice_of_columns(folder, output, columns, by):
    done = stats(folder, *output, "--by", by, *(["--columns", columns] if columns else []))
    assert (done.exit_code, done.exception) == (0, None)
    assert done.stdout
