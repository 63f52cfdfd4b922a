"""What was exported comes back equal, whatever the texts, and other programs' readers accept it."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from rg_env.analysis import statistics
from rg_env.cli import app
from rg_env.dump import Attempt, DumpWriter, Phase, open_run, write_manifest
from rg_env.dump.validate import validate
from rg_env.scoring.types import Status
from tests.dump.records import RUN_ID, group, manifest, rollout, unanswered, violating

SAMPLE = Path(__file__).parents[2] / "dumps" / "sample"
HOSTILE = "\0\x1b[2J\u2028</think><script>zorp(1)</script>{{7*7}}\ud7ff\U0010ffff\r\n" * 3
TURNS = [
    {"role": "user", "content": HOSTILE},
    {"role": "assistant", "content": ""},
    {"role": "tool", "content": "{}"},
    {"role": "critic", "content": "hm"},
    {"role": "assistant", "content": HOSTILE},
]


def dumps(*args):
    return CliRunner().invoke(app, ["dumps", *map(str, args)])


def lines(path):
    return sorted(msgspec.json.encode(group) for group in open_run(path).all_attempts().groups())


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """Records of every kind: several turns, no response, violations, unknown numbers, evaluation, other attempts."""
    folder = tmp_path_factory.mktemp("odd")
    with DumpWriter(folder, RUN_ID, 1) as writer:
        several = rollout(math.nan, 3, status=Status.UNSCORED, conversation=TURNS, turns=2, custom_reward=-1.5)
        groups = [
            group(0, [rollout(1.0), violating(1), unanswered(2), several], environment="gym"),
            group(1, [rollout(1.0, conversation=[])], attempt=2, step=None),
            group(2, [0.9, 0.8], phase=Phase.TRAIN, level='{"a": 1}', complexity=0.5, solved_at=0.75),
        ]
        assert writer.write_blocking(groups)
    return folder


@pytest.mark.parametrize(
    ("source", "name", "form"),
    [
        ("sample", "atif", "a.jsonl"),
        ("sample", "traces", "traces.jsonl"),
        ("odd", "atif", "folder"),
        ("odd", "traces", "traces.jsonl"),
    ],
)
def test_what_was_exported_comes_back_equal(name, form, source, odd, tmp_path):
    dump = SAMPLE if source == "sample" else odd
    done = dumps("export", name, dump, "--out", tmp_path / form)
    assert done.exit_code == 0, done.output
    done = dumps("import", {"traces": "verifiers"}.get(name, name), tmp_path / form, "--out", tmp_path / "back")
    assert done.exit_code == 0, done.output
    assert lines(tmp_path / "back") == lines(dump)
    assert validate(tmp_path / "back").good
    assert dumps("stats", tmp_path / "back").exit_code == 0


@pytest.mark.parametrize(("name", "program"), [("atif", "atif"), ("traces", "verifiers")])
def test_what_solved_meant_comes_back(name, program, tmp_path):
    write_manifest(tmp_path, RUN_ID, Attempt.read(manifest(solved_at=0.5)))
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        assert writer.write_blocking([group(0, [0.6, 0.4])])
    out = tmp_path / name / "traces.jsonl"
    assert dumps("export", name, tmp_path, "--out", out).exit_code == 0
    assert dumps("import", program, out, "--out", tmp_path / "back").exit_code == 0
    assert statistics(open_run(tmp_path / "back"))["solve_rate"].to_list() == [0.5]


EXPORTS = [("atif", "atif", "eval"), ("traces", "verifiers", "again/traces.jsonl")]


@pytest.mark.parametrize(("name", "back", "file"), EXPORTS)
def test_exports_that_overlap_come_back_once(name, back, file, odd, tmp_path):
    for out in ("traces.jsonl", file):
        assert dumps("export", name, odd, "--out", tmp_path / "source" / out).exit_code == 0
    done = dumps("import", back, tmp_path / "source", "--out", tmp_path / "out")
    assert done.exit_code == 0 and "7 rollouts saved again and counted once" in " ".join(done.output.split())
    assert lines(tmp_path / "out") == lines(odd)
