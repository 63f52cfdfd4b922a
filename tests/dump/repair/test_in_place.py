"""Mending in place, killed before every file operation it makes, and done again."""

from __future__ import annotations

import os
import shutil
import signal
import sys

import pytest

from rg_env.dump.files import PREFIX, list_files
from rg_env.dump.lock import RunLock
from rg_env.dump.repair.in_place import recover_in_place
from rg_env.dump.repair.recover import recover
from rg_env.dump.repair.validate import validate
from rg_env.errors import DumpError
from tests.dump.records import RUN_ID
from tests.dump.repair.damage import write_record

_OPERATIONS = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "shutil.rmtree"}


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damaged")
    write_record(folder)
    first = list_files(folder)[0].path
    first.write_bytes(first.read_bytes()[:-20])
    return folder


def _files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def _killed_at(folder, moment):
    """Mend in a child that is killed before its file operation number `moment`; True if it lived to the end."""
    child = os.fork()
    if child == 0:
        done = 0

        def count(event, args):
            nonlocal done
            if event in _OPERATIONS and str(folder) in str(args):
                done += 1
                if done == moment:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        recover_in_place(folder)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return status == 0


def test_killed_before_every_file_operation(damaged, tmp_path):
    expected = tmp_path / "expected"
    recover(damaged, expected)
    moment, alive = 0, False
    while not alive:
        moment += 1
        folder = tmp_path / str(moment)
        shutil.copytree(damaged, folder)
        alive = _killed_at(folder, moment)
        recover_in_place(folder)
        assert _files(folder) == _files(expected), moment
        (aside,) = [path for path in folder.iterdir() if path.is_dir()]
        assert _files(aside).items() <= _files(damaged).items()
        assert len(_files(aside)) == len(list_files(damaged))
        shutil.rmtree(folder)
    assert moment > 50  # it was really counted


def test_a_sound_record_stays_as_it_is(tmp_path):
    write_record(tmp_path)
    before = _files(tmp_path)
    reports, aside = recover_in_place(tmp_path)
    assert aside is None
    assert not any(report.changes.total for report in reports)
    assert _files(tmp_path) == before
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_runs_that_are_sound_and_other_files_stay_where_they_are(damaged, tmp_path):
    folder = tmp_path / "dumps"
    shutil.copytree(damaged, folder)
    (folder / "notes.txt").write_text("mine")
    for path in (tmp_path / "expected").glob("*") or []:
        path.unlink()
    sound = tmp_path / "sound"
    write_record(sound)
    for path in sound.iterdir():
        text = path.read_text().replace(RUN_ID, "20261121-060000-cd34")
        (folder / path.name.replace(RUN_ID, "20261121-060000-cd34")).write_text(text)
    others = {name: content for name, content in _files(folder).items() if "cd34" in name}
    _, aside = recover_in_place(folder)
    assert (folder / "notes.txt").read_text() == "mine"
    assert others.items() <= _files(folder).items()
    assert all(RUN_ID in name for name in _files(aside))
    assert validate(folder).good


def test_a_run_that_is_being_written_is_left_alone(damaged, tmp_path):
    folder = shutil.copytree(damaged, tmp_path / "dumps")
    before = _files(folder)
    lock = RunLock(folder, RUN_ID)
    try:
        with pytest.raises(DumpError, match="being written"):
            recover_in_place(folder)
        with pytest.raises(DumpError, match="being written"):
            recover(folder, tmp_path / "out")
    finally:
        lock.release()
    assert _files(folder) == before


def test_files_written_since_an_interrupted_mending_are_not_moved(damaged, tmp_path):
    folder = shutil.copytree(damaged, tmp_path / "dumps")
    moment = 1
    while not list(folder.glob(".recovered-*")):
        shutil.rmtree(folder)
        shutil.copytree(damaged, folder)
        moment += 1
        assert not _killed_at(folder, moment)
    new = folder / f"{PREFIX}_rollouts_{RUN_ID}_0099.jsonl"
    new.write_text("{}\n")
    with pytest.raises(DumpError, match=f"{new.name} has changed since the repair was interrupted"):
        recover_in_place(folder)
    assert new.exists()


def test_only_a_folder_can_be_mended_in_place(damaged):
    with pytest.raises(DumpError, match="whole dump folder"):
        recover_in_place(list_files(damaged)[0].path)
