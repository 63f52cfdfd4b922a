from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rg_env.dump import claim_run, new_run_id, write_manifest
from rg_env.dump.files import batch_name, parse_name
from rg_env.dump.manifest import RUN_FILE, read_manifest
from rg_env.dump.schema import SCHEMA_VERSION, FileKind
from rg_env.errors import DumpError


def test_run_ids_are_safe_in_names_and_sort_by_time():
    ids = {new_run_id() for _ in range(100)}  # as a sweep starts them, in the same second
    assert len(ids) == 100
    assert all(re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{8}", run_id) for run_id in ids)


@pytest.mark.parametrize(
    "run_id", ["20261121-053012-ab12cd34", "a_b_0001", "6a1f0f3e-8a65-4d57-9f2c-00000001", "groups_7"]
)
@pytest.mark.parametrize("kind", FileKind)
@pytest.mark.parametrize("batch", [0, 42, 12345])
def test_names_are_taken_apart_as_they_were_put_together(run_id, kind, batch):
    for part in ("", ".part"):
        file = parse_name(Path(batch_name(kind, run_id, batch) + part))
        assert (file.kind, file.run_id, file.batch, file.part) == (kind, run_id, batch, bool(part))


def test_a_resumed_run_keeps_its_id_and_counts_its_attempts(tmp_path):
    run_id, attempt = claim_run(tmp_path / "ckpts", resuming=False)
    assert attempt == 1
    assert claim_run(tmp_path / "ckpts", resuming=True) == (run_id, 2)
    assert claim_run(tmp_path / "ckpts", resuming=True) == (run_id, 3)


def test_a_fresh_start_in_an_old_folder_is_another_run(tmp_path):
    first, _ = claim_run(tmp_path, resuming=False)
    second, attempt = claim_run(tmp_path, resuming=False)
    assert (second != first, attempt) == (True, 1)
    assert claim_run(tmp_path, resuming=True) == (second, 2)


def test_resuming_checkpoints_that_know_no_run_starts_one(tmp_path):
    assert claim_run(tmp_path, resuming=True)[1] == 1


def test_checkpoints_at_a_url(tmp_path):
    run_id, _ = claim_run(f"file://{tmp_path}/ckpts", resuming=False)
    assert claim_run(f"file://{tmp_path}/ckpts", resuming=True) == (run_id, 2)
    assert json.loads((tmp_path / "ckpts" / RUN_FILE).read_text()) == {"run_id": run_id, "attempt": 2}


@pytest.mark.parametrize("content", ["", "[]", '{"run_id": "x"}', "\0\0"])
def test_a_damaged_run_file_is_said_and_left_alone(tmp_path, content):
    (tmp_path / RUN_FILE).write_text(content)
    with pytest.raises(DumpError, match="is damaged"):
        claim_run(tmp_path, resuming=True)
    assert (tmp_path / RUN_FILE).read_text() == content


def test_an_unwritable_checkpoint_folder_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DumpError, match=r"choose another trainer\.ckpt_path"):
        claim_run(tmp_path / "file" / "ckpts", resuming=False)


def test_the_manifest_keeps_every_attempt(tmp_path):
    write_manifest(tmp_path, "run", {"attempt": 1, "model": "nano", "settings": {"lr": 1e-4, "path": Path("x")}})
    path = write_manifest(tmp_path, "run", {"attempt": 2, "model": "nano", "settings": {"lr": 2e-4}})
    assert [p.name for p in tmp_path.iterdir()] == ["reasoning_gym_environment_manifest_run.json"] == [path.name]
    manifest = read_manifest(tmp_path, "run")
    assert (manifest["schema_version"], manifest["run_id"], manifest["attempt"]) == (SCHEMA_VERSION, "run", 2)
    assert manifest["versions"]["reasoning-gym"]
    assert manifest["settings"] == {"lr": 2e-4}
    assert [attempt["settings"]["lr"] for attempt in manifest["attempts"]] == [1e-4, 2e-4]


def test_a_damaged_manifest_is_replaced(tmp_path, log):
    write_manifest(tmp_path, "run", {}).write_text("{")
    write_manifest(tmp_path, "run", {"attempt": 2})
    assert [attempt["attempt"] for attempt in read_manifest(tmp_path, "run")["attempts"]] == [2]
    assert any("is damaged" in line for line in log)
