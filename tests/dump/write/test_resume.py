"""Every state that a killed attempt can leave behind is finished by the next one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from rg_env.base.errors import DumpError
from rg_env.dump import DumpWriter, FileKind, ledger_line, to_line
from rg_env.dump.files import batch_name
from rg_env.dump.part_file import finish_leftovers
from rg_env.dump.run_file import claim_run
from tests.dump.records import RUN_ID, group, names, uids


def test_a_run_is_found_again_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    run_id, _ = claim_run("~/checkpoints", resuming=False)
    assert claim_run("~/checkpoints", resuming=True) == (run_id, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


@pytest.mark.parametrize("url", ["foo://bucket/run", "s3://bucket/run"])
def test_a_place_that_nothing_can_reach_is_one_line(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    for resuming in (False, True):
        with pytest.raises(DumpError, match=r": cannot write the run id \(.*\): choose another trainer.ckpt_path"):
            claim_run(url, resuming=resuming)


def _part(folder: Path, kind: FileKind, *lines: bytes, number: int = 0) -> Path:
    path = folder / f"{batch_name(kind, RUN_ID, number)}.part"
    path.write_bytes(b"".join(lines))
    return path


def _text(uid: int) -> bytes:
    return to_line(group(uid))


def _ledger(uid: int) -> bytes:
    return ledger_line(group(uid), FileKind.ROLLOUTS)


def _next_attempt(folder: Path) -> None:
    DumpWriter(folder, RUN_ID, 2).close()


def test_ledger_lines_in_finished_batches_count(tmp_path):
    for uid in (0, 1):
        _part(tmp_path, FileKind.LEDGER, _ledger(uid), number=uid).rename(
            tmp_path / batch_name(FileKind.LEDGER, RUN_ID, uid)
        )
    _part(tmp_path, FileKind.ROLLOUTS, _text(0), _text(1))
    _next_attempt(tmp_path)
    assert uids(tmp_path) == ["0", "1"]


@pytest.mark.parametrize("content", [b"", b'{"item_id": "to'])
def test_parts_without_a_whole_line_are_removed(tmp_path, content):
    for kind in (FileKind.ROLLOUTS, FileKind.LEDGER):
        _part(tmp_path, kind, content)
    _next_attempt(tmp_path)
    assert not list(tmp_path.iterdir())


def test_whole_parts_are_finished_and_other_runs_and_files_are_left_alone(tmp_path):
    _part(tmp_path, FileKind.ROLLOUTS, _text(0), number=4)
    _part(tmp_path, FileKind.LEDGER, _ledger(0), number=2)
    other = tmp_path / f"{batch_name(FileKind.ROLLOUTS, 'other', 0)}.part"
    other.write_bytes(b'{"torn')
    foreign = tmp_path / "notes.part"
    foreign.write_text("mine")
    _next_attempt(tmp_path)
    assert (other.read_bytes(), foreign.read_text()) == (b'{"torn', "mine")
    assert names(tmp_path) >= {"rollouts_0004.jsonl", "ledger_0002.jsonl"}
    assert [line["uid"] for line in map(json.loads, next(tmp_path.glob("*ledger*")).open())] == ["0"]


def test_a_tail_longer_than_a_read_is_found(tmp_path):
    _part(tmp_path, FileKind.ROLLOUTS, _text(0), b"x" * (3 << 20))
    _next_attempt(tmp_path)
    assert uids(tmp_path, FileKind.ROLLOUTS) == ["0"]


@pytest.mark.parametrize("kind", [FileKind.ROLLOUTS, FileKind.LEDGER])
def test_a_file_cut_off_anywhere_in_its_last_two_lines(ram_folder, kind):
    """Whichever of a group's two files it is, the other one's whole lines and this one's are all there afterwards."""
    texts, ledger = [_text(k) for k in range(3)], [_ledger(k) for k in range(3)]
    torn, whole = (texts, ledger) if kind is FileKind.ROLLOUTS else (ledger, texts)
    content = b"".join(torn)
    ends = {*range(len(torn[0]), len(content), 5), *(len(torn[0]) + k for k in (-1, 1)), len(content) - 1, len(content)}
    for end in sorted(ends):
        folder = ram_folder / str(end)
        folder.mkdir()
        _part(folder, kind, content[:end])
        if kind is FileKind.LEDGER:
            _part(folder, FileKind.ROLLOUTS, *whole)
        finish_leftovers(folder, RUN_ID)
        left = content[:end].count(b"\n")
        assert uids(folder) == [str(k) for k in range(3 if kind is FileKind.LEDGER else left)]
        assert uids(folder, FileKind.ROLLOUTS) == uids(folder)
        assert not list(folder.glob("*.part"))
