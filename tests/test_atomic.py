from __future__ import annotations

import errno
from pathlib import Path

import pytest

from rg_env.base.atomic import new_file, replace_bytes, replacing, sync_path
from rg_env.base.errors import ConfigError


def test_a_finished_draft_replaces_the_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replacing(path) as draft:
        draft.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_and_a_file_forced_to_disk(tmp_path):
    with replacing(tmp_path / "folder") as draft:
        draft.mkdir()
        (draft / "a.txt").write_text("new")
    replace_bytes(tmp_path / "b.txt", b"new")
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")} == {"folder", "folder/a.txt", "b.txt"}
    with pytest.raises(OSError, match="not empty"), replacing(tmp_path / "folder") as draft:
        draft.mkdir()
        (draft / "b.txt").write_text("newer")
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["a.txt"]
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "b.txt"}


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_failed_write_leaves_the_old_file_and_no_draft(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(error), replacing(path) as draft:
        draft.write_text("half")
        raise error
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_only_what_cannot_be_written_is_said_to_be(tmp_path):
    with pytest.raises(FileNotFoundError, match="elsewhere"), new_file(tmp_path / "out" / "a.txt"):
        Path("/nowhere/elsewhere").read_text()
    (tmp_path / "file").write_text("in the way")
    advised = r"a\.txt cannot be written \(File exists\): choose another name"
    with pytest.raises(ConfigError, match=advised), new_file(tmp_path / "file" / "a.txt"):
        pass
    full = OSError(errno.ENOSPC, "No space left on device")
    said = r"a\.txt cannot be written \(No space left on device\)$"
    with pytest.raises(ConfigError, match=said), new_file(tmp_path / "a.txt"):
        raise full


def test_a_file_system_that_cannot_sync_has_not_failed():
    """/proc is one: the kernel says EINVAL."""
    assert sync_path(Path("/proc/self")) is False
    assert sync_path(Path(__file__)) is True
