"""`rg-env runs`: a row for every run, whatever state its files are in."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rg_env.base.errors import DumpError
from rg_env.cli import app
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import Attempt, DumpWriter, open_run, write_manifest
from tests.dump.records import group

SAMPLE = Path(__file__).parents[2] / "dumps" / "sample"
(SAMPLE_ID,) = (run.run_id for run in open_run(SAMPLE).runs)
EVIL = "\x1b]0;owned\x07\n[red]model[/x]"


def invoke(*args):
    return CliRunner().invoke(app, list(map(str, args)))


def begin(folder, day, groups=(), **facts):
    """A run that began on a day of November: its writer and its manifest."""
    run_id = f"202611{day:02d}-100000-ab"
    writer = DumpWriter(folder, run_id, 1, RGDumpConfig(dump_other_rollouts=False))
    manifest = write_manifest(
        folder, run_id, Attempt.read({"attempt": 1, "started": f"2026-11-{day:02d}T10:00:00Z", **facts})
    )
    records = [group(number, scores, run_id=run_id, **known) for number, (scores, known) in enumerate(groups)]
    assert writer.submit(records).result(5)
    return writer, manifest


def change(manifest, old, new):
    assert old in manifest.read_text()
    manifest.write_text(manifest.read_text().replace(old, new))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evaluated = [([float(number > 0), 1.0], {"step": 2, "phase": "eval"}) for number in range(4)]
    writer, manifest = begin(Path("runs/whole-1/dumps"), 1, [([1.0, 0.0], {"step": 1}), *evaluated], model=EVIL)
    writer.close()
    change(manifest, '"missing_groups": 0', '"missing_groups": 2')
    Path("runs/whole").symlink_to("whole-1")
    running, _ = begin(Path("runs/running-2/dumps"), 2, [([1.0], {"step": 7, "task": "gcd"})])
    writer, manifest = begin(Path("runs/killed"), 3)
    writer.close()
    change(manifest, '"ended"', '"began"')
    writer, manifest = begin(Path("runs/torn"), 4, [([1.0], {"step": None})])
    writer.close()
    manifest.write_text(manifest.read_text()[:99])
    begin(Path("runs/two of them"), 5, [([0.0], {})])[0].close()
    shutil.copytree(SAMPLE, "runs/two of them", dirs_exist_ok=True)
    foreign = Path("runs/foreign/reasoning_gym_environment_rollouts_old_0000.jsonl")
    foreign.parent.mkdir()
    foreign.write_text('{"item_id": "gcd", "rollouts": [{"conversation": [], "score": 1.0}]}\n')
    Path("runs/not-begun/ckpts").mkdir(parents=True)
    yield Path("runs")
    running.close()


def test_every_run_is_a_row_and_the_newest_is_first(folder):
    done = invoke("runs", "--json")
    assert done.exit_code == 0
    rows = json.loads(done.stdout)
    assert [(row["run_id"][4:8], row["dump"], row["state"], row["groups"], row["step"]) for row in rows] == [
        ("1123", "runs/two of them", "ended", 32, 3),
        ("1105", "runs/two of them", "ended", 1, 1),
        ("1104", "runs/torn", "corrupt manifest", 1, None),
        ("1103", "runs/killed", "killed", 0, None),
        ("1102", "runs/running-2/dumps", "running", 1, 7),
        ("1101", "runs/whole-1/dumps", "ended", 5, 2),
        ("", "runs/foreign", "no manifest", 0, None),
    ]
    sample, *_, running, whole, foreign = rows
    assert (sample["model"], sample["tasks"]) == ("rg_env/cpu/nano", ["leg_counting", "spell_backward"])
    assert running["tasks"] == ["gcd"] and running["ended"] is None and running["evaluation"] is None
    assert whole["missing_groups"] == 2 and whole["ended"]
    assert (whole["evaluation"]["step"], whole["evaluation"]["groups"], whole["evaluation"]["solve_rate"]) == (
        2,
        4,
        0.875,
    )
    assert whole["evaluation"]["solve_rate_low"] < 0.875 < whole["evaluation"]["solve_rate_high"]
    assert "line 1: a line of Atropos' environment" in foreign["problem"]


def test_the_list_says_how_a_run_went_and_what_it_prints_can_be_pasted(folder):
    done = invoke("runs")
    lines = done.stdout.splitlines()
    assert done.stderr == ""  # a folder without a dump is no mistake of the user
    assert all(character.isprintable() for character in done.stdout.replace("\n", ""))
    facts = lines[lines.index("runs/whole-1/dumps") + 1].split(" · ")
    assert facts[1:5] == ["ended", "2 groups missing", "step 2", "␛]0;owned␇␊[red]model[/x]"]
    assert re.fullmatch(r"88% \[\d+%, \d+%\] solved", facts[5]) and facts[6:] == ["chain_sum"]
    (of_sample,) = [line for line in lines if SAMPLE_ID in line]
    path = shlex.split(lines[lines.index(of_sample) - 1])
    shown = invoke("dumps", "stats", *path, "--where", f"run_id = '{SAMPLE_ID}'")
    assert shown.exit_code == 0 and "32 groups" in shown.stdout


def test_a_run_says_what_it_is_how_far_it_got_and_why_it_ended(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trained = {"settings": {"trainer": {"policy": {}, "max_training_steps": 60}}, "model": "nano", "kind": "train"}
    writer, manifest = begin(Path("runs/a/dumps"), 1, [([1.0], {"step": 34})], name="long thoughts", **trained)
    writer.close()
    change(manifest, '"ended"', '"end": "stopped by SIGTERM", "ended"')
    begin(Path("runs/b-20261102"), 2, [([1.0], {"step": None, "phase": "eval"})], name="b", kind="eval")[0].close()
    begin(Path("runs/c"), 3, [([1.0], {"step": 5})], kind="import", imported={"from": "atropos"})[0].close()
    rows = json.loads(invoke("runs", "--json").stdout)
    assert [(row["kind"], row["name"], row["total_steps"], row["end"]) for row in rows] == [
        ("import", "c", None, ""),
        ("eval", "b", None, ""),
        ("train", "long thoughts", 60, "stopped by SIGTERM"),
    ]
    lines = [line.strip() for line in invoke("runs").stdout.splitlines()]
    assert lines[1].startswith("import · 2026-11-03 ") and " · ended · 1 group · " in lines[1]
    assert lines[5].startswith("long thoughts · train · ")
    assert lines[3].startswith("eval · ")  # the path above has its name
    assert " · stopped by SIGTERM · step 34 of 60 · nano · " in lines[5]


def test_a_folder_that_is_none_of_runs(folder):
    alone = invoke("runs", "runs/whole/dumps", "--json")
    assert [row["dump"] for row in json.loads(alone.stdout)] == ["runs/whole/dumps"]
    nothing = invoke("runs", "runs/not-begun", "--json")
    assert (nothing.exit_code, nothing.stdout.strip()) == (1, "[]")
    assert nothing.stderr.startswith("rg-env: no runs found below runs/not-begun/, three levels deep: name another")
    for wrong in ("nowhere", "runs/foreign/reasoning_gym_environment_rollouts_old_0000.jsonl"):
        error = invoke("runs", wrong).exception
        assert isinstance(error, DumpError) and str(error).startswith(f"{wrong} ")


def test_a_folder_without_a_dump_names_those_below_it(folder):
    with pytest.raises(DumpError) as error:
        open_run(folder)
    assert "; below it there are dumps in runs/foreign, runs/killed, runs/running-2/dumps, " in str(error.value)
