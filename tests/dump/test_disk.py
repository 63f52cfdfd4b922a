"""The disk fails: training goes on, the failure is said once, nothing half-written stays, writing resumes."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rg_env.dump import DumpWriter, FileKind, open_run
from tests.dump.records import RUN_ID, group, lines_of, names, rollout, uids


def _padded(uid: object) -> object:
    return group(uid, [rollout(conversation=[{"role": "assistant", "content": "x" * 5000}])])


_FILE_SIZE_LIMIT = """
import resource, sys
from rg_env.dump import DumpWriter
from tests.dump.test_disk import _padded
from tests.dump.records import RUN_ID

hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
with DumpWriter(sys.argv[1], RUN_ID, 1) as writer:
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    accepted = [writer.submit([_padded(k)]).result(5) for k in range(8)]
    assert accepted == [True] * 3 + [False] * 5, accepted
    assert writer.missing == 5
    for path in writer.folder.glob("*.part"):  # as another process sees them now
        assert path.read_bytes().endswith(b"\\n"), path
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert writer.submit([_padded(8)]).result(5)
    assert writer.missing == 0
"""


def test_a_file_size_limit_stops_nothing_and_leaves_nothing_half_written(tmp_path):
    child = subprocess.run(
        [sys.executable, "-c", _FILE_SIZE_LIMIT, tmp_path], capture_output=True, text=True, timeout=60
    )
    assert child.returncode == 0, child.stderr
    assert uids(tmp_path) == uids(tmp_path, FileKind.ROLLOUTS) == [str(k) for k in range(9)]
    errors = [line for line in child.stderr.splitlines() if "| ERROR" in line]
    assert [line.split(" - ")[-1].split(" (")[0] for line in errors] == [
        f"dump: {count} records not on disk"
        for count in (1, 2, 4)  # said again each time it has doubled
    ]
    assert child.stderr.count("writing again") == 1


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 kB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("tmpfs cannot be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk(small_disk, log):
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 220_000)
    with DumpWriter(small_disk, RUN_ID, 1, groups_per_file=2) as writer:
        results = [writer.submit([_padded(k)]).result(5) for k in range(9)]
        assert results[0] and not results[-1]
        on_disk = results.count(True)
        assert writer.missing == 9 - on_disk
        assert uids(small_disk) == [str(k) for k in range(on_disk)]  # strict: any torn line would raise
        ballast.unlink()
        assert writer.flush() == 0
    assert uids(small_disk) == uids(small_disk, FileKind.ROLLOUTS) == [str(k) for k in range(9)]
    assert any("No space left on device" in line and line.startswith("ERROR") for line in log)


@pytest.mark.parametrize("broken", [FileKind.ROLLOUTS, FileKind.LEDGER])
def test_text_and_ledger_are_both_there_or_neither(tmp_path, monkeypatch, broken):
    """A write that fails after some bytes, in either of a group's two files."""
    real = os.write
    failing = True

    def write(fd: int, data: memoryview) -> int:
        if failing and f"_{broken}_" in Path(f"/proc/self/fd/{fd}").readlink().name:
            real(fd, data[:10])
            raise OSError(errno.EIO, "Input/output error")
        return real(fd, data)

    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        assert writer.submit([group(0)]).result(5)
        monkeypatch.setattr("rg_env.dump.batch.os.write", write)
        failing = True
        assert not writer.submit([group(1)]).result(5)
        assert uids(tmp_path) == uids(tmp_path, FileKind.ROLLOUTS) == ["0"]
        failing = False
        assert writer.submit([group(2)]).result(5)
    assert uids(tmp_path) == uids(tmp_path, FileKind.ROLLOUTS) == ["0", "1", "2"]


def test_a_failure_at_the_very_first_write_leaves_no_empty_file(tmp_path, monkeypatch):
    def write(fd: int, data: memoryview) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("rg_env.dump.batch.os.write", write)
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        assert not writer.submit([group(0), group(1, [0.0])]).result(5)
        assert names(tmp_path) == {"lock"}
        assert writer.close() == 2


def test_what_waits_is_tried_a_last_time_at_the_end(tmp_path, monkeypatch):
    def write(fd: int, data: memoryview) -> int:
        raise OSError(errno.EIO, "Input/output error")

    writer = DumpWriter(tmp_path, RUN_ID, 1)
    with monkeypatch.context() as broken:
        broken.setattr("rg_env.dump.batch.os.write", write)
        assert not writer.submit([group(0)]).result(5)
    assert writer.close() == 0
    assert uids(tmp_path) == ["0"]


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
        assert writer.missing == 0
        with pytest.raises(Exception, match="is being written"):
            DumpWriter(folder, RUN_ID, 2)
    assert uids(folder) == ["2"]
    (said,) = [line for line in log if line.startswith("ERROR")]
    assert "removed or moved" in said
    assert "_groups_" in said and ": 2" in said
    if how == "moved":
        assert sum(1 for _ in open_run(tmp_path / "elsewhere").groups()) == 2


def test_a_folder_that_cannot_be_made_anew_is_waited_for(tmp_path, log):
    folder = tmp_path / "dumps"
    with DumpWriter(folder, RUN_ID, 1) as writer:
        assert writer.submit([group(0)]).result(5)
        shutil.rmtree(folder)
        folder.write_text("in the way")
        assert not writer.submit([group(1)]).result(5)
        assert writer.missing == 1
        folder.unlink()
        assert writer.submit([group(2)]).result(5)
    assert [line["uid"] for line in lines_of(folder, FileKind.LEDGER)] == ["1", "2"]
    assert any("1 records not on disk" in line for line in log)
    assert any("writing again" in line for line in log)
