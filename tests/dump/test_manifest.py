from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rg_env.base.errors import DumpError
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import SCHEMA_VERSION, Attempt, DumpWriter, claim_run, close_all, new_run_id, write_manifest
from rg_env.dump.manifest import Manifest, merge_manifests, read_manifest
from rg_env.dump.run_file import RUN_FILE
from rg_env.dump.run_files import find_runs, run_names
from tests.analysis.samples import write_ledger
from tests.dump.records import group, manifest


def test_run_ids_are_safe_in_names_and_sort_by_time():
    ids = {new_run_id() for _ in range(100)}  # as a sweep starts them, in the same second
    assert len(ids) == 100
    assert all(re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{8}", run_id) for run_id in ids)


def test_a_resumed_run_keeps_its_id_and_counts_its_attempts(tmp_path):
    run_id, attempt = claim_run(tmp_path / "ckpts", resuming=True)
    assert attempt == 1, "these checkpoints know no run"
    assert claim_run(tmp_path / "ckpts", resuming=True) == (run_id, 2)
    assert claim_run(tmp_path / "ckpts", resuming=True) == (run_id, 3)
    other, attempt = claim_run(tmp_path / "ckpts", resuming=False)
    assert (other != run_id, attempt) == (True, 1), "a fresh start in an old folder is another run"
    assert claim_run(tmp_path / "ckpts", resuming=True) == (other, 2)


def test_checkpoints_at_a_url(tmp_path):
    run_id, _ = claim_run(f"file://{tmp_path}/ckpts", resuming=False)
    assert claim_run(f"file://{tmp_path}/ckpts", resuming=True) == (run_id, 2)
    assert json.loads((tmp_path / "ckpts" / RUN_FILE).read_text()) == {"run_id": run_id, "attempt": 2}


@pytest.mark.parametrize("content", ["", "[]", '{"run_id": "x"}', "\0\0"])
def test_a_corrupt_run_file_is_said_and_left_alone(tmp_path, content):
    (tmp_path / RUN_FILE).write_text(content)
    with pytest.raises(DumpError, match="is corrupt"):
        claim_run(tmp_path, resuming=True)
    assert (tmp_path / RUN_FILE).read_text() == content


def test_an_unwritable_checkpoint_folder_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DumpError, match=r"choose another trainer\.ckpt_path"):
        claim_run(tmp_path / "file" / "ckpts", resuming=False)


def test_the_manifest_keeps_every_attempt(tmp_path):
    write_manifest(tmp_path, "run", Attempt(attempt=1, model="nano", settings={"lr": 1e-4, "path": Path("x")}))
    path = write_manifest(tmp_path, "run", Attempt(attempt=2, model="nano", settings={"lr": 2e-4}))
    assert [p.name for p in tmp_path.iterdir()] == ["reasoning_gym_environment_manifest_run.json"] == [path.name]
    manifest = read_manifest(tmp_path, "run")
    assert (manifest.schema_version, manifest.run_id, manifest.attempt) == (SCHEMA_VERSION, "run", 2)
    assert manifest.versions["reasoning-gym"]
    assert manifest.settings == {"lr": 2e-4}
    assert [attempt.settings["lr"] for attempt in manifest.attempts] == [1e-4, 2e-4]


def test_a_corrupt_manifest_is_replaced(tmp_path, log):
    write_manifest(tmp_path, "run", Attempt()).write_text("{")
    write_manifest(tmp_path, "run", Attempt(attempt=2))
    assert [attempt.attempt for attempt in read_manifest(tmp_path, "run").attempts] == [2]
    assert any("is corrupt" in line for line in log)


def test_settings_that_are_absent_or_invalid_today_have_their_default():
    wire = manifest(solved_at=0.5, groups_per_file=-1, length_penalty={"kind": "no such kind"})
    del wire["settings"]["environment"]["skyrl_gym"]["rg_dump"]["seed"]
    assert Manifest.read(wire).rg_dump == RGDumpConfig(solved_at=0.5)
    assert Manifest().rg_dump is None


@pytest.mark.parametrize("value", [None, 7, "x", [1], {"a": 1}, True, -0.5])
def test_a_value_of_another_type_is_not_known(value):
    """A manifest may come from anywhere: each value by itself is known or not."""
    names = [name for name in Manifest.__struct_fields__ if name != "attempts"]
    read = Manifest.read(dict.fromkeys(names, value) | {"attempts": [value, {"attempt": 2, "missing_groups": 3}]})
    assert all(type(read_value) in (type(value), type(default)) for read_value, default in _with_defaults(read))
    assert read.attempts[-1] == Attempt(attempt=2, missing_groups=3) and read.missing_in_all == 3
    assert Manifest.read({"attempts": value}).attempts == []


def _with_defaults(manifest):
    empty = Manifest()
    return [(getattr(manifest, name), getattr(empty, name)) for name in Manifest.__struct_fields__]


# -- names of runs


def named(folder, *runs):
    for place, run_id, model in runs:
        (folder / place).mkdir(parents=True, exist_ok=True)
        write_ledger(folder / place, [group(0, run_id=run_id)], run_id)
        if model:
            write_manifest(folder / place, run_id, Attempt(model=model))
    return run_names(find_runs(sorted({folder / place for place, *_ in runs})))


def test_runs_are_named_by_as_much_as_tells_them_apart(tmp_path):
    assert named(tmp_path / "0", ("quickstart/dumps", "r1", "lab/nano")) == {"r1": "lab/nano (quickstart)"}
    small, large = ("a", "r1", "small"), ("b", "r2", "/home/somebody/large")
    assert named(tmp_path / "1", small, large) == {"r1": "small", "r2": "large"}
    assert named(tmp_path / "2", ("a", "r1", "nano"), ("b", "r2", "nano")) == {"r1": "a", "r2": "b"}
    models = [small, large, ("b", "r3", "small")]
    assert named(tmp_path / "3", *models) == {"r1": "small (a)", "r2": "large (b)", "r3": "small (b)"}
    assert named(tmp_path / "4", ("d", "r4", "nano"), ("d", "r5", "nano")) == {"r4": "r4", "r5": "r5"}
    assert named(tmp_path / "5", small, ("c", "r6", None)) == {"r1": "a", "r6": "c"}


def test_runs_are_in_the_order_given(tmp_path):
    named(tmp_path, ("a", "r3", "m"), ("a", "r1", "m"), ("b", "r2", "m"))
    assert [run.run_id for run in find_runs([tmp_path / "b", tmp_path / "a"])] == ["r2", "r1", "r3"]


def test_a_copy_from_before_the_next_attempt_does_not_hide_how_many_lines_there_were():
    killed = Attempt(attempt=1, ledger_lines=10)
    whole = Manifest(attempts=[killed, Attempt(attempt=2, ended="now", ledger_lines=5)])
    copy = Manifest(attempts=[Attempt(attempt=1)])
    for manifests in ([whole, copy], [copy, whole]):
        merged = merge_manifests(manifests)
        assert merged is not None and merged.attempts == whole.attempts
    ended = Manifest(attempts=whole.attempts, ended="now", end="finished")
    for manifests in ([ended, whole], [whole, ended]):
        merged = merge_manifests(manifests)
        assert merged is not None and merged.end == "finished"


def test_how_a_run_ended_is_noted_by_the_first_who_knows(tmp_path):
    """A run that is stopped fails afterwards, too: that is not why it ended."""
    write_manifest(tmp_path, "run", Attempt(attempt=1, kind="train"))
    DumpWriter(tmp_path, "run", 1)
    close_all("stopped by SIGTERM")
    close_all("failed: KeyboardInterrupt")
    manifest = read_manifest(tmp_path, "run")
    assert manifest.end == manifest.attempts[0].end == "stopped by SIGTERM"
    assert manifest.ended
