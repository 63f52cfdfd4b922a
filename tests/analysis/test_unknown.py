"""What is not in a dump is not reported: plain Atropos files hold conversations and scores, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rg_env.analysis import statistics
from rg_env.analysis.report import build_report
from rg_env.analysis.signs import Coverage, Sign, find_signs
from rg_env.browser.index import index_rows
from rg_env.cli import app
from rg_env.dump import open_run, to_line
from tests.analysis.samples import write_texts
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
    (row,) = statistics(open_run(foreign)).rows(named=True)
    unknown = {name: value for name, value in row.items() if name.startswith(UNKNOWN)}
    assert len(unknown) > 20
    assert set(unknown.values()) == {None}
    assert (row["solve_rate"], row["mean_base_score"], row["groups"]) == (0.5, 0.5, 20)


def test_rates_are_over_the_rollouts_whose_format_is_known(foreign, tmp_path):
    ours = b"".join(map(to_line, [group(0, [rollout(1.0, 0, truncated=True), violating(1)], task="gcd")]))
    foreign.write_bytes(foreign.read_bytes() + ours)
    table = statistics(open_run(foreign), pool_runs=True).row(0, named=True)
    assert (table["rollouts"], table["format_rate"], table["truncated"]) == (42, 0.5, 0.5)
    assert (table["violation_no_answer"], table["status_ok"], table["penalized"]) == (0.5, 1.0, 0.0)
    by = {
        row["violation"]: row["rollouts"]
        for row in statistics(open_run(foreign), "violation", pool_runs=True).to_dicts()
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


def test_frames_and_the_browsers_index_have_null(foreign):
    frame = open_run(foreign).ledger_frame()
    for name in ("status", "truncated", "penalty_factor", "normalized"):
        assert frame[name].null_count() == frame.height
    (chunk,) = index_rows(open_run(foreign))
    assert set(chunk.rows["status"].explode()) == set(chunk.rows["truncated"].explode()) == {None}


def test_the_report_says_that_it_is_missing(foreign):
    text = build_report(open_run(foreign))
    assert "violations, scoring failures and truncation" in text
    assert "every response counts as well formed" not in text
    assert '"format_rate":null' in text.replace(" ", "")


def test_overlong_needs_the_reference_answer(tmp_path):
    path = tmp_path / "foreign.jsonl"
    path.write_text("".join(atropos(f"<think>t</think><answer>{k} {'x' * 300}</answer>", 1.0) for k in range(30)))
    assert not [one for one in find_signs(open_run(path)) if one.sign is Sign.OVERLONG]


def copied(score: float, folder: Path) -> list[Sign]:
    say = f"<think>t</think><answer>{PROMPT}</answer>"
    conversation = [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": say}]
    rollouts = [rollout(score, k, conversation=conversation, answer=PROMPT) for k in range(4)]
    write_texts(folder, [group(uid, rollouts, step=uid) for uid in range(20)])
    return [finding.sign for finding in find_signs(open_run(folder))]


def test_a_copied_prompt_is_a_sign_only_if_it_was_rewarded(tmp_path):
    assert Sign.COPIED not in copied(0.0, tmp_path / "unpaid")
    assert Sign.COPIED in copied(0.3, tmp_path / "paid")


@pytest.mark.parametrize(
    ("reference", "wins"), [("0.0", False), ("0", False), (" 0.00", False), ("1", True), ("x", True)]
)
def test_the_same_number_is_the_same_answer(reference, wins, tmp_path):
    say = "<think>t</think><answer>0.0000</answer>"
    conversation = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": say}]
    entry = json.dumps({"question": "Q", "answer": reference})
    groups = [
        group(
            uid, [rollout(1.0, k, conversation=conversation, answer="0.0000") for k in range(4)], entry=entry, step=uid
        )
        for uid in range(12)
    ]
    write_texts(tmp_path, groups)
    assert (Sign.ONE_ANSWER_WINS in {finding.sign for finding in find_signs(open_run(tmp_path))}) == wins


def test_audit_says_how_much_it_could_read(foreign):
    done = CliRunner().invoke(app, ["dumps", "audit", str(foreign)])
    assert "40 responses read: 0 with an answer, 0 with a think block, 0 to an item with a known" in done.stdout
    assert all(f"  {sign} (0)" in done.stdout for sign in Sign)
    coverage = Coverage()
    find_signs(open_run(foreign), coverage)
    assert (coverage.responses, coverage.answers) == (40, 0)
