"""The disk fails: training goes on, the failure is said once, nothing half-written stays, writing resumes.

Every failure is the kernel's own: `/dev/full`, a limit on file sizes, permissions.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from pathlib import Path

import pytest

from rg_env.base.errors import DumpError
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import Attempt, DumpWriter, FileKind, TrainedRecord, open_run, to_line, write_manifest
from rg_env.dump.files import batch_name
from rg_env.dump.manifest import read_manifest
from rg_env.dump.validate import validate
from tests.dump.records import RUN_ID, group, lines_of, names, rollout, uids
from tests.running import run_program


@pytest.fixture
def full_after(monkeypatch):
    """Call it with a number of bytes and kinds of files: each write to those takes so many, then the device is full."""
    real = os.write
    full = os.open("/dev/full", os.O_WRONLY)
    state = {}

    def write(fd: int, data: memoryview) -> int:
        name = Path(f"/proc/self/fd/{fd}").readlink().name
        if any(f"_{kind}_" in name for kind in state.get("kinds", ())):
            real(fd, data[: state["taken"]])
            return real(full, data)
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    yield lambda taken, *kinds: state.update(taken=taken, kinds=kinds)
    os.close(full)


@pytest.mark.parametrize("broken", [FileKind.ROLLOUTS, FileKind.LEDGER])
def test_text_and_ledger_are_both_there_or_neither_and_a_failure_is_said_once(tmp_path, full_after, broken, log):
    """A write that fails after some bytes, in either of a group's two files."""
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        assert writer.submit([group(0)]).result(5)
        full_after(10, broken)
        assert [writer.submit([group(k)]).result(5) for k in range(1, 5)] == [False] * 4
        assert writer.missing == 4
        assert uids(tmp_path) == uids(tmp_path, FileKind.ROLLOUTS) == ["0"], "as another process sees them now"
        full_after(0)
        assert writer.submit([group(5)]).result(5)
        assert writer.missing == 0
    assert uids(tmp_path) == uids(tmp_path, FileKind.ROLLOUTS) == [str(k) for k in range(6)]
    assert [line.partition(" (")[0] for line in log if "ERROR" in line] == ["ERROR dump: 1 group not on disk"]
    assert sum("writing again" in line for line in log) == 1


def test_what_was_trained_on_waits_behind_its_groups(tmp_path, full_after, log):
    trained = [TrainedRecord(RUN_ID, 1, 1, group(0).group_id, 2)]
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        full_after(10, FileKind.LEDGER)
        assert not writer.submit([group(0)]).result(5)
        assert not writer.submit(trained).result(5)
        assert writer.missing == 1
        assert not list(tmp_path.glob("*_trained_*"))
        full_after(0)
        assert writer.write_blocking() and writer.missing == 0
    assert [line["group_id"] for line in lines_of(tmp_path, FileKind.TRAINED)] == [group(0).group_id]


def test_what_was_trained_on_is_not_recorded_for_groups_that_were_dropped(tmp_path, full_after, log, monkeypatch):
    monkeypatch.setattr("rg_env.dump.writer.MAX_KEPT_BYTES", 200_000)
    big = [rollout(conversation=[{"role": "assistant", "content": "x" * 50_000}])]
    groups = [group(k, big) for k in range(10)]
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        full_after(10, FileKind.LEDGER)
        for record in groups:
            assert not writer.submit([record]).result(5)
        assert not writer.submit([TrainedRecord(RUN_ID, 1, 1, g.group_id, 1) for g in groups]).result(5)
        full_after(0)
        assert writer.write_blocking() and writer.missing == 7
    assert uids(tmp_path) == ["0", "1", "2"]
    assert [line["group_id"] for line in lines_of(tmp_path, FileKind.TRAINED)] == [g.group_id for g in groups[:3]]
    assert validate(tmp_path).good
    errors = [line for line in log if line.startswith("ERROR")]
    assert sum("refused so far, the disk still fails" in line for line in errors) == 3  # 1, 2, 4
    assert errors[-1].endswith("7 groups missing from " + str(tmp_path))


def test_a_failure_at_the_very_first_write_leaves_no_empty_file(tmp_path, full_after):
    full_after(0, *FileKind)
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        assert not writer.submit([group(0), group(1, [0.0])]).result(5)
        assert names(tmp_path) == {"lock"}
        assert writer.close() == 2


def test_what_waits_is_tried_a_last_time_at_the_end(tmp_path, full_after):
    full_after(5, FileKind.ROLLOUTS)
    writer = DumpWriter(tmp_path, RUN_ID, 1)
    assert not writer.submit([group(0)]).result(5)
    full_after(0)
    assert writer.close() == 0
    assert uids(tmp_path) == ["0"]


def test_memory_stays_bounded_while_the_disk_takes_nothing(tmp_path):
    child = run_program("dump_in_bounded_memory", tmp_path)
    kept = int(child.stdout)
    assert kept == 32  # of 32 MiB
    assert uids(tmp_path) == [str(k) for k in range(kept)]
    assert "268 groups missing from" in child.stderr


def test_a_group_for_which_there_is_no_memory_waits_and_the_process_goes_on(tmp_path):
    child = run_program("dump_without_memory", tmp_path)
    assert uids(tmp_path) == uids(tmp_path, FileKind.ROLLOUTS) == ["0", "1"]
    assert "1 group not on disk (MemoryError)" in child.stderr
    assert "writing again" in child.stderr


def test_a_folder_that_becomes_read_only():
    with tempfile.TemporaryDirectory() as name:  # not below pytest's own folder, which other users may not enter
        child = run_program("dump_read_only", name)
        assert uids(Path(name)) == uids(Path(name), FileKind.ROLLOUTS) == ["0", "1", "2", "3"]
        assert not [path for path in Path(name).iterdir() if path.suffix != ".jsonl"]
    assert child.stdout.startswith(f"dump folder {name} cannot be written (Permission denied)")
    assert "could not be finished" in child.stderr
    assert "1 group not on disk" in child.stderr
    assert "writing again" in child.stderr


@pytest.mark.parametrize("how", ["removed", "moved"])
def test_a_folder_that_goes_away_is_said_and_made_anew(tmp_path, log, how):
    folder = tmp_path / "dumps"
    with DumpWriter(folder, RUN_ID, 1) as writer:
        assert writer.submit([group(0), group(1)]).result(5)
        if how == "removed":
            shutil.rmtree(folder)
        else:
            folder.rename(tmp_path / "elsewhere")
        assert writer.submit([group(2)]).result(5)
        assert writer.missing_groups() == [group(0).group_id, group(1).group_id]
    assert uids(folder) == ["2"]
    said = [line for line in log if line.startswith("ERROR")]
    assert len(said) == 3
    assert all("was removed or moved while being written, with 2 lines" in line for line in said[:2])
    assert "_rollouts_" in said[0] and "_ledger_" in said[1]
    assert "2 groups missing" in said[2]
    if how == "moved":
        assert sum(1 for _ in open_run(tmp_path / "elsewhere").groups()) == 2


def test_a_folder_that_is_renamed_is_made_anew_with_its_manifest_and_its_lock(tmp_path, log):
    """So the groups that went with it are missing here, and nobody else can write the run."""
    folder, moved = tmp_path / "dumps", tmp_path / "moved"
    with DumpWriter(folder, RUN_ID, 1, RGDumpConfig(groups_per_file=10)) as writer:
        write_manifest(folder, RUN_ID, Attempt(attempt=1, model="nano"))
        assert writer.submit([group(number) for number in range(25)]).result(5)
        folder.rename(moved)
        assert writer.submit([group(number) for number in range(25, 50)]).result(5)
        with pytest.raises(DumpError, match="is being written"):
            DumpWriter(folder, RUN_ID, 1)
    assert read_manifest(folder, RUN_ID).model == "nano"
    assert "manifest.json" in names(folder) and "lock" not in names(folder)
    assert (read_manifest(folder, RUN_ID).ledger_lines, writer.missing) == (50, 5)
    found = {finding.kind: str(finding) for finding in validate(folder).findings}
    assert found.keys() == {"groups_missing", "lines_missing", "gap"}
    assert "25 of 50 ledger lines of attempt 1 are missing" in found["lines_missing"]
    assert found["gap"].endswith(
        "_0000.jsonl: this file is missing, and the next 1, and later ones of its kind are there"
    )
    together = validate(folder, moved)
    assert together.records[FileKind.LEDGER] == 50
    assert "lines_missing" not in together.findings.counts and "gap" not in together.findings.counts


def test_a_folder_that_cannot_be_made_anew_is_waited_for(tmp_path, log):
    folder = tmp_path / "dumps"
    with DumpWriter(folder, RUN_ID, 1) as writer:
        assert writer.submit([group(0)]).result(5)
        shutil.rmtree(folder)
        folder.write_text("in the way")
        assert not writer.submit([group(1)]).result(5)
        assert writer.missing == 2, "the first went with the folder"
        folder.unlink()
        assert writer.submit([group(2)]).result(5)
    assert [line["uid"] for line in lines_of(folder, FileKind.LEDGER)] == ["1", "2"]
    assert any("2 groups not on disk" in line for line in log)
    assert any("writing again" in line for line in log)


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("kind", [FileKind.ROLLOUTS, FileKind.LEDGER])
def test_groups_in_a_file_that_was_taken_away_are_missing(tmp_path, kind, again):
    """Also if nothing is written after it."""
    write_manifest(tmp_path, RUN_ID, Attempt(attempt=1))
    writer = DumpWriter(tmp_path, RUN_ID, 1)
    assert writer.submit([group(0), group(1)]).result(5)
    next(tmp_path.glob(f"*_{kind}_*.part")).unlink()
    if again:
        assert writer.submit([group(2)]).result(5)
    assert writer.close() == 2
    dump = open_run(tmp_path)
    assert dump.has_every_group is False
    assert "2 groups could not be written" in " ".join(dump.findings().summary())


def test_what_an_fsync_failed_for_is_missing(tmp_path, monkeypatch, log):
    """Linux reports such an error once; the next fsync succeeds without the data."""
    write_manifest(tmp_path, RUN_ID, Attempt(attempt=1))
    failures = [OSError(errno.EIO, "Input/output error")]
    real = os.fsync

    def fsync(fd: int) -> None:
        if failures:
            raise failures.pop()
        real(fd)

    with DumpWriter(tmp_path, RUN_ID, 1, RGDumpConfig(dump_fsync=True)) as writer:
        monkeypatch.setattr(os, "fsync", fsync)
        assert not writer.submit([group(0), group(1)]).result(5)
        assert writer.missing == 2
        assert writer.submit([group(2)]).result(5)
        assert writer.missing_groups() == [group(0).group_id, group(1).group_id]
    assert any("2 groups not on disk" in line for line in log)
    assert open_run(tmp_path).has_every_group is False


@pytest.mark.parametrize("why", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_cannot_sync_a_folder_loses_nothing(tmp_path, monkeypatch, log, why):
    """CIFS, some of FUSE's. Also when a killed run is resumed there: its ledger lacks a line."""
    real = os.fsync

    def fsync(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(why, os.strerror(why))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    config = RGDumpConfig(dump_fsync=True)
    text = tmp_path / (batch_name(FileKind.ROLLOUTS, RUN_ID, 0) + ".part")
    text.write_bytes(to_line(group(0)))
    with DumpWriter(tmp_path, RUN_ID, 2, config) as writer:
        for number in (1, 2):
            assert writer.submit([group(number)]).result(5)
    assert writer.missing == 0
    assert uids(tmp_path) == ["0", "1", "2"]
    assert not [line for line in log if line.startswith("ERROR")]
    assert sum("cannot force files to disk" in line for line in log) == 1
