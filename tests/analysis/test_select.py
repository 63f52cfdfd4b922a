"""Conditions in the commands that read texts."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from rg_env.cli import app
from rg_env.dump import open_run
from rg_env.dump.frames import ConditionError
from tests.analysis.samples import groups, write_ledger, write_texts
from tests.dump.records import group, rollout

TESTS = {
    "task = 'gcd'": lambda g, r: g.task == "gcd",
    "phase = 'train'": lambda g, r: g.phase == "train",
    "step BETWEEN 2 AND 5": lambda g, r: g.step is not None and 2 <= g.step <= 5,
    "base_score > 0.4": lambda g, r: r.base_score > 0.4,
    "violation = ''": lambda g, r: not r.violation,
}


@settings(max_examples=25)
@given(members=groups(), chosen=st.lists(st.sampled_from(sorted(TESTS)), min_size=1, max_size=2), ledger=st.booleans())
def test_records_and_frames_have_the_rollouts_that_match(tmp_path_factory, members, chosen, ledger):
    folder = tmp_path_factory.mktemp("dump")
    write_texts(folder, members)
    if ledger:
        write_ledger(folder, members)
    expected = {
        (g.group_id, r.repetition, r.base_score)
        for g in members
        for r in g.rollouts
        if all(TESTS[condition](g, r) for condition in chosen)
    }
    assume(expected)
    dump = open_run(folder).where(chosen)
    assert {(g.group_id, r.repetition, r.base_score) for g, r in dump.rollouts()} == expected
    frame = dump.ledger_frame()
    assert set(frame.select("group_id", "repetition", "base_score").rows()) == expected
    texts = dump.scan(texts=True).select("group_id", "repetition", "base_score").collect()
    assert set(texts.rows()) == expected
    if ledger:
        assert {g.group_id for g in dump.ledger()} == {group_id for group_id, *_ in expected}


def test_nothing_that_matches_is_an_error(tmp_path):
    write_texts(tmp_path, [group(0)])
    with pytest.raises(ConditionError, match="no rollout matches task = 'lcm'; the tasks are chain_sum"):
        open_run(tmp_path).where(["task = 'lcm'"]).ledger_frame()


@pytest.fixture
def folder(tmp_path):
    made = [group(k, [rollout(1.0, 0), rollout(0.0, 1)], step=k, task="gcd" if k % 2 else "lcm") for k in range(1, 9)]
    write_ledger(tmp_path / "dump", made)
    write_texts(tmp_path / "dump", made)
    return tmp_path / "dump"


def dumps(*args):
    return CliRunner().invoke(app, ["dumps", *map(str, args)])


def test_export(folder, tmp_path):
    out = tmp_path / "sft.jsonl"
    assert dumps("export", "sft", folder, "--out", out, "--where", "task = 'gcd'").exit_code == 0
    assert {json.loads(line)["task"] for line in out.read_text().splitlines()} == {"gcd"}


def test_signs(folder):
    assert "4 responses read" in dumps("signs", folder, "--where", "task = 'gcd'", "--where", "base_score = 0").stdout


@pytest.mark.parametrize("command", [("report", "--out", "r.html"), ("export", "sft", "--out", "r.jsonl"), ("signs",)])
def test_a_mistake_is_one_line(folder, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error = dumps(*command, folder, "--where", "color = 'red'").exception
    assert isinstance(error, ConditionError)
    assert "\n" not in str(error)
