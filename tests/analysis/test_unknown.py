"""What is not in a dump is not reported: plain Atropos files hold conversations and scores, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rg_env.analysis import statistics
from rg_env.analysis.report import build_report
from rg_env.browser.app import rows_of
from rg_env.cli import app
from rg_env.dump import open_run, to_line
from tests.dump.records import group, rollout, violating

PROMPT = "What is the sum of these two numbers: 2 and 3?"


def atropos(response: str, score: float, prompt: str = PROMPT) -> str:
    conversation = [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]
    rollouts = [{"conversation": conversation, "score": score}, {"conversation": conversation, "score": 0.0}]
    return json.dumps({"item_id": "gcd", "rollouts": rollouts}) + "\n"


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    path = tmp_path / "foreign.jsonl"
    path.write_text("".join(atropos(f"{k} " + "words " * 50, 1.0) for k in range(20)))
    return path


UNKNOWN = ("format", "truncated", "violation_", "status_", "scorer_fail", "rejected", "penal", "solve_given", "tagged")


def test_statistics_of_what_nobody_recorded_are_null(foreign):
    (row,) = statistics(open_run(foreign).scan()).rows(named=True)
    unknown = {name: value for name, value in row.items() if name.startswith(UNKNOWN)}
    assert len(unknown) > 20
    assert set(unknown.values()) == {None}
    assert (row["solve_rate"], row["mean_base_score"], row["groups"]) == (0.5, 0.5, 20)


def test_rates_are_over_the_rollouts_whose_format_is_known(foreign, tmp_path):
    ours = b"".join(map(to_line, [group(0, [rollout(1.0, 0, truncated=True), violating(1)], task="gcd")]))
    foreign.write_bytes(foreign.read_bytes() + ours)
    table = statistics(open_run(foreign).scan(), pool_runs=True).row(0, named=True)
    assert (table["rollouts"], table["format_rate"], table["truncated"]) == (42, 0.5, 0.5)
    assert (table["violation_no_answer"], table["status_ok"], table["penalized"]) == (0.5, 1.0, 0.0)
    by = {
        row["violation"]: row["rollouts"]
        for row in statistics(open_run(foreign).scan(), "violation", pool_runs=True).to_dicts()
    }
    assert by == {None: 1, "no_answer": 1, "unknown": 40}


def test_table_json_and_csv_say_nothing_about_it(foreign):
    def stats(*args):
        return CliRunner().invoke(app, ["dumps", "stats", str(foreign), *args]).stdout

    assert "format" not in stats()
    assert "cut" not in stats()
    details = stats("--details")
    assert "format_rate" not in details
    assert "violation_" not in details
    (row,) = json.loads(stats("--json"))
    assert row["format_rate"] is None
    assert row["truncated"] is None
    head, line = (text.split(",") for text in stats("--csv").splitlines())
    assert dict(zip(head, line, strict=True))["format_rate"] == ""


def test_frames_have_null_and_the_browser_nothing(foreign):
    frame = open_run(foreign).ledger_frame()
    for name in ("status", "truncated", "penalty_factor", "normalized"):
        assert frame[name].null_count() == frame.height
    assert set(rows_of(open_run(foreign))["troubles"]) == {""}


def test_the_report_says_that_it_is_missing(foreign):
    text = build_report(open_run(foreign))
    assert "violations, scoring failures and truncation" in text
    assert "every response counts as well formed" not in text
    assert '"format_rate":null' in text.replace(" ", "")
