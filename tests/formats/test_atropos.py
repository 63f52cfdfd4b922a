"""Atropos' files become a dump that says what they lack; hostile and torn lines cost themselves only."""

from __future__ import annotations

import json
import shutil

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from rg_env.cli import app
from rg_env.dump import open_run
from rg_env.dump.validate import validate
from rg_env.errors import DumpError
from rg_env.formats import FORMATS, import_records
from rg_env.scoring.types import Status

UUID = "6a1f0f3e-8a65-4d57-9f2c-000000000001"


def line(*scores, task="gcd"):
    conversation = [{"role": "user", "content": "é?", "more": 1}, {"role": "assistant", "content": "a\ud800"}]
    return json.dumps({"item_id": task, "rollouts": [{"conversation": conversation, "score": s} for s in scores]})


def import_atropos(source, out):
    return import_records("atropos", FORMATS["atropos"], source, out)


def dumps(*args):
    return CliRunner().invoke(app, ["dumps", *map(str, args)])


def test_what_the_lines_have_is_in_the_dump_and_what_they_lack_is_said(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / f"reasoning_gym_environment_rollouts_{UUID}_0000.jsonl").write_text(
        f"{line(1, 0.5)}\n\n{line(None, 0)}\n"
    )
    packed = source / f"reasoning_gym_environment_FAILED_rollouts_{UUID}_0000.jsonl.zst"
    packed.write_bytes(zstd.compress(line(0, 0, task="lcm").encode()))
    (source / "mine.jsonl").write_text(line(float("nan"), 1.0))
    done = dumps("import", "atropos", source, "--out", tmp_path / "out")
    assert done.exit_code == 0
    said = "8 rollouts in 4 groups; no step, no reference answer, no raw and tagged scores, no policy version,"
    assert " ".join(done.stdout.split()).startswith(said)
    assert "reward of 2 unknown: status unscored" in " ".join(done.stdout.split())
    dump = open_run(tmp_path / "out")
    assert [run.run_id for run in dump.runs] == [UUID, "mine"]
    groups = {group.uid: group for group in dump.groups()}
    first = groups[f"reasoning_gym_environment_rollouts_{UUID}_0000.jsonl:0"]
    assert (first.task, first.environment, first.outcome, first.no_signal) == ("gcd", "imported", "mixed", False)
    assert [(r.base_score, r.reward, r.status) for r in first.rollouts] == [(1.0, 1.0, "ok"), (0.5, 0.5, "ok")]
    assert first.rollouts[0].conversation == [
        {"role": "user", "content": "é?"},
        {"role": "assistant", "content": "a?"},
    ]
    assert all(r.raw_score is None and not r.violation and r.response_tokens is None for r in first.rollouts)
    assert [r.status for r in groups["mine.jsonl:0"].rollouts] == [Status.UNSCORED, Status.OK]
    assert validate(tmp_path / "out").good
    (row,) = json.loads(dumps("stats", tmp_path / "out", "--json", "--where", "task = 'lcm'").stdout)
    assert (row["solve_rate"], row["format_rate"], row["mean_raw_score"], row["rollouts"]) == (0.0, None, None, 2)


@pytest.mark.parametrize(
    "bad",
    [
        "{torn",
        "[1]",
        "null",
        line(1) + line(1),
        '{"item_id": "gcd"}',
        '{"item_id": "gcd", "rollouts": []}',
        '{"item_id": true, "rollouts": [{}]}',
        line("1"),
        line(True),
        '{"item_id": "gcd", "rollouts": [{"conversation": [3], "score": 1}]}',
        line(10**400, 1),
        "[" * 100_000,
        "\0" * 50,
    ],
)
def test_a_bad_line_is_left_out_and_costs_no_other(bad, tmp_path):
    (tmp_path / "a.jsonl").write_text("\n".join([line(1, 0), bad, line(0, 0)]))
    result = import_atropos(tmp_path / "a.jsonl", tmp_path / "out")
    (said,) = result.left_out
    assert said.startswith("a.jsonl, line 2: ") and "\n" not in said and len(said) < 300
    assert result.groups == 2


@given(content=st.binary(max_size=80))
def test_any_bytes_are_read_or_said(content, tmp_path_factory):
    folder = tmp_path_factory.mktemp("any")
    (folder / "a.jsonl").write_bytes(content + b"\n" + line(1, 0).encode())
    assert import_atropos(folder / "a.jsonl", folder / "out").groups == 1


def test_a_score_beyond_all_numbers_is_no_score(tmp_path):
    (tmp_path / "a.jsonl").write_text(line(1e301, float("inf"), 1))
    assert import_atropos(tmp_path / "a.jsonl", tmp_path / "out").unscored == 2


def test_mistakes_are_one_line(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "torn.jsonl.zst").write_bytes(zstd.compress(line(1).encode())[:-5])
    for source, out, says in [
        (tmp_path / "no.jsonl", tmp_path / "out", "cannot be read"),
        (tmp_path / "full", tmp_path / "out", "has no file of Atropos"),
        (tmp_path / "torn.jsonl.zst", tmp_path / "out", "damaged zstd data"),
        (tmp_path / "torn.jsonl.zst", tmp_path / "full", "is not empty"),
    ]:
        with pytest.raises(DumpError, match=says) as error:
            import_atropos(source, out)
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        assert "\n" not in str(error.value)
