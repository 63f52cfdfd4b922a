"""Several runs in the report: the figures are those of `statistics` and `compare`, the settings those that differ."""

from __future__ import annotations

import pytest

from rg_env.analysis import compare, measure, statistics
from rg_env.dump import Attempt, write_manifest
from rg_env.page import build_report
from rg_env.page.side_by_side import as_text
from tests.analysis.reports import Report, dump_of
from tests.dump.records import RUN_ID, group

OTHER_RUN = "20261122-060000-cd34"
SCORES = {RUN_ID: [[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]], OTHER_RUN: [[1.0, 1.0], [1.0, 1.0], [0.0, 1.0]]}


def settings(lr, tasks, folder):
    ours = {"skyrl_gym": {"rg_dump": {"tasks": tasks, "dump_dir": folder}}}
    return {"trainer": {"policy": {"lr": lr}, "ckpt_path": folder, "seed": 7}, "environment": ours, "cache": folder}


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    """Two runs with other learning rates and another option of gcd; evaluated at steps 0 and 8 or 0 and 6."""
    folder = tmp_path_factory.mktemp("dump")
    for run_id, last in ((RUN_ID, 8), (OTHER_RUN, 6)):
        tasks = {"chain_sum": {"config": {}}, "gcd": {"config": {"max": last}}}
        facts = {"attempt": 1, "task_mix": tasks, "settings": settings(last / 1e5, tasks, f"/home/me/{last}")}
        write_manifest(folder, run_id, Attempt.read(facts))
        made = []
        for number, scores in enumerate(SCORES[run_id]):
            task = {"task": "gcd" if number == 2 else "chain_sum"}
            made.append(group(number, [0.0, 1.0], run_id=run_id, phase="eval", step=0, call=1, **task))
            made.append(group(number, scores, run_id=run_id, phase="eval", step=last, call=2, **task))
            made += [group(10 * step + number, scores, run_id=run_id, step=step, **task) for step in range(1, last)]
        result = dump_of(folder, made, run_id=run_id)
    return result


@pytest.fixture(scope="module")
def report(dump):
    return Report(build_report(dump)).summary


def test_the_last_evaluations_are_compared_over_the_questions_that_both_have(dump, report):
    last, first, training = report["comparisons"]
    assert (last["phase"], last["moment"], last["steps"], last["run_ids"]) == ("eval", "last", [8, 6], [*SCORES])
    assert (first["moment"], first["steps"]) == ("first", [0, 0])
    assert (training["phase"], training["steps"]) == ("train", [None, None])
    (solved,) = [row for row in last["totals"] if row["measure"] == "solve_rate"]
    ends = {RUN_ID: 8, OTHER_RUN: 6}
    parts = {
        run_id: dump.where([f"run_id = '{run_id}' AND step = {step} AND phase = 'eval'"])
        for run_id, step in ends.items()
    }
    for (run_id, part), value in zip(parts.items(), solved["values"], strict=True):
        row = statistics(part, "phase").row(0, named=True)
        assert value["value"] == pytest.approx(row["solve_rate"])
        assert (value["low"], value["high"]) == pytest.approx((row["solve_rate_low"], row["solve_rate_high"]))
        recount = [score for scores in SCORES[run_id] for score in scores]
        assert value["value"] == pytest.approx(sum(recount) / len(recount))
    sides = [measure(parts[run_id], to_match=True) for run_id in (RUN_ID, OTHER_RUN)]
    expected = compare(*sides, "phase", unmatched=["gcd"]).filter(measure="solve_rate").row(0, named=True)
    none, difference = solved["differences"]
    assert none is None
    assert difference == pytest.approx({name: expected[name] for name in difference})
    assert difference["questions"] == 2  # those of gcd are other questions
    assert difference["difference"] == pytest.approx(-0.25)  # the first run minus the second


def test_tasks_whose_options_differ_and_training_have_no_difference(report):
    last, _, training = report["comparisons"]
    assert [(row["task"], row["differences"][1] is None) for row in last["tasks"]] == [
        ("chain_sum", False),
        ("gcd", True),
    ]
    assert "Not compared, because the options of the task or of its file differ: gcd." in report["notes"]
    assert not any(any(row["differences"]) for row in training["totals"] + training["tasks"])
    assert [row["measure"] for row in training["totals"]][:2] == ["solve_rate_last", "mean_reward"]


def test_training_without_steps_shows_its_solve_rate(tmp_path):
    for run_id, scores in SCORES.items():
        made = [group(number, each, run_id=run_id, step=None) for number, each in enumerate(scores)]
        dump = dump_of(tmp_path, made, run_id=run_id)
    (training,) = Report(build_report(dump)).summary["comparisons"]
    solved, *_ = training["totals"]
    every = [[score for each in scores for score in each] for scores in SCORES.values()]
    rates = [sum(score >= 0.99 for score in scores) / len(scores) for scores in every]
    assert solved["measure"] == "solve_rate"
    assert [value["value"] for value in solved["values"]] == pytest.approx(rates)
    assert [value["value"] for value in training["tasks"][0]["values"]] == pytest.approx(rates)


def test_settings_that_differ_are_listed_without_paths(report):
    assert report["differing_settings"] == [
        {"name": "trainer.policy.lr", "values": ["8e-05", "6e-05"]},
        {"name": "tasks.gcd.config.max", "values": ["8", "6"]},
    ]
    assert len(as_text("x" * 1000)) == 80


def test_runs_that_differ_in_seeds_alone_are_alike(tmp_path):
    settings = [
        {"trainer": {"seed": 1, "lr": 0.1}},
        {"trainer": {"seed": 2, "lr": 0.1}},
        {"trainer": {"seed": 2, "lr": 0.2}},
        {},
    ]
    for number, of_run in enumerate(settings):
        write_manifest(tmp_path, f"run{number}", Attempt.read({"model": "m", "settings": of_run}))
        dump = dump_of(tmp_path, [group(number, run_id=f"run{number}")], run_id=f"run{number}")
    runs = Report(build_report(dump)).summary["runs"]
    numbers = {run["run_id"]: run["alike"] for run in runs}
    assert numbers["run0"] == numbers["run1"]
    assert len(set(numbers.values())) == 3


def test_one_run_is_compared_with_nothing(dump):
    summary = Report(build_report(dump.where([f"run_id = '{RUN_ID}'"]))).summary
    assert summary["comparisons"] == summary["differing_settings"] == []
    assert ["tasks", "chain_sum, gcd"] in summary["runs"][0]["settings"]
