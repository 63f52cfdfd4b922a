"""A run that was killed and will not be resumed: its files are finished in place."""

from __future__ import annotations

import shutil

import pytest

from rg_env.dump import DumpWriter, FileKind, NewerSchemaError, open_run
from rg_env.dump.files import list_files
from rg_env.dump.lock import RunLock
from rg_env.dump.repair.recover import recover
from rg_env.dump.repair.validate import validate
from rg_env.dump.write.resume import Leftovers
from rg_env.errors import DumpError
from tests.dump.records import RUN_ID, group, names
from tests.dump.repair.damage import write_record


def _killed(folder, groups=6):
    """The files of a killed run: no batch is full."""
    with DumpWriter(folder, RUN_ID, 1) as writer:
        assert writer.submit([group(k) for k in range(groups)]).result(10)
        for file in list_files(folder):
            shutil.copy(file.path, file.path.with_name(f"{file.path.name}.copy"))
    for file in list_files(folder):
        file.path.unlink()
    for path in folder.glob("*.copy"):
        path.rename(path.with_suffix(""))


def test_what_was_left_open_is_finished(tmp_path):
    _killed(tmp_path)
    assert recover(tmp_path) == {RUN_ID: Leftovers(files=2, torn=0, ledger_lines=0)}
    assert names(tmp_path) == {"rollouts_0000.jsonl", "groups_0000.jsonl"}
    assert validate(tmp_path).good
    assert recover(tmp_path) == {RUN_ID: Leftovers()}


def test_a_lost_ledger_is_made_again_from_finished_texts(tmp_path):
    groups = write_record(tmp_path)
    for file in list_files(tmp_path):
        if file.kind is FileKind.LEDGER:
            file.path.unlink()
    kept = {one.group_id for one in open_run(tmp_path).groups()}
    assert recover(tmp_path)[RUN_ID].ledger_lines == len(kept) < len(groups)
    assert {record.group_id for record in open_run(tmp_path).ledger()} == kept


def test_sound_files_and_files_of_others_stay_as_they_are(tmp_path):
    write_record(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert recover(tmp_path) == {RUN_ID: Leftovers()}
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_run_that_is_being_written_is_left_alone(tmp_path):
    _killed(tmp_path)
    before = names(tmp_path)
    lock = RunLock(tmp_path, RUN_ID)
    with pytest.raises(DumpError, match="is being written"):
        recover(tmp_path)
    lock.release()
    assert names(tmp_path) == before


def test_a_later_schema_and_a_file_are_refused(tmp_path):
    _killed(tmp_path)
    (path,) = [file.path for file in list_files(tmp_path) if file.kind is FileKind.ROLLOUTS]
    with pytest.raises(DumpError, match="not a folder"):
        recover(path)
    path.write_bytes(path.read_bytes().replace(b'"schema_version":1', b'"schema_version":9'))
    with pytest.raises(NewerSchemaError):
        recover(tmp_path)
