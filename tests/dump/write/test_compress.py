"""Finished batches are compressed behind the writer's back, and nothing is lost, doubled or overwritten by it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import duckdb
import polars as pl
import pytest
from backports import zstd

from rg_env.dump import DumpWriter, FileKind, open_run
from rg_env.dump.files import parse_name
from tests.dump.records import RUN_ID, group, names


def _write(folder, attempt, uids, **options):
    with DumpWriter(folder, RUN_ID, attempt, groups_per_file=2, **options) as writer:
        for uid in uids:
            assert writer.submit([group(uid, attempt=attempt)]).result(5)


def _read(folder):
    dump = open_run(folder)
    ledger = [record.uid for record in dump.ledger(all_attempts=True)]
    assert sorted(record.uid for record in dump.groups(all_attempts=True)) == sorted(ledger)
    assert not dump.problems
    return ledger


def test_every_finished_batch_is_compressed_and_reads_the_same(tmp_path):
    _write(tmp_path / "plain", 1, range(5))
    _write(tmp_path / "zstd", 1, range(5), compression="zstd")
    plain = {path.name: path.read_bytes() for path in (tmp_path / "plain").iterdir()}
    compressed = {path.name: zstd.decompress(path.read_bytes()) for path in (tmp_path / "zstd").iterdir()}
    assert compressed == {f"{name}.zst": content for name, content in plain.items()}
    assert _read(tmp_path / "zstd") == [str(uid) for uid in range(5)]


def test_a_later_attempt_compresses_what_an_earlier_one_left_and_takes_no_number_twice(tmp_path):
    _write(tmp_path, 1, range(3))
    _write(tmp_path, 2, range(3, 5), compression="zstd")
    _write(tmp_path, 3, range(5, 6))
    assert {name for name in names(tmp_path) if "groups" in name} == {
        "groups_0000.jsonl.zst",
        "groups_0001.jsonl.zst",
        "groups_0002.jsonl.zst",
        "groups_0003.jsonl",
    }
    assert _read(tmp_path) == [str(uid) for uid in range(6)]


def test_what_a_killed_compression_left_is_tidied_up_and_done_again(tmp_path):
    _write(tmp_path, 1, range(2))
    (ledger,) = tmp_path.glob("*_groups_*")
    (text,) = tmp_path.glob("*_rollouts_*")
    whole, half = (path.with_name(path.name + end) for path, end in ((ledger, ".zst"), (text, ".zst.part")))
    whole.write_bytes(zstd.compress(ledger.read_bytes()))
    half.write_bytes(zstd.compress(text.read_bytes())[:20])
    assert _read(tmp_path) == ["0", "1"]
    _write(tmp_path, 2, [])
    assert names(tmp_path) == {"groups_0000.jsonl", "rollouts_0000.jsonl"}
    whole.write_bytes(zstd.compress(ledger.read_bytes()))
    _write(tmp_path, 3, [], compression="zstd")
    assert names(tmp_path) == {"groups_0000.jsonl.zst", "rollouts_0000.jsonl.zst"}
    assert _read(tmp_path) == ["0", "1"]


def test_another_runs_files_are_left_alone(tmp_path):
    other = tmp_path / "reasoning_gym_environment_groups_other_0000.jsonl.zst.part"
    other.write_bytes(b"theirs")
    _write(tmp_path, 1, range(2), compression="zstd")
    assert other.read_bytes() == b"theirs"


def test_other_libraries_read_compressed_batches_as_they_are(tmp_path):
    _write(tmp_path, 1, range(2), compression="zstd")
    for path in tmp_path.iterdir():
        assert pl.read_ndjson(path)["uid"].to_list() == ["0", "1"]
        assert duckdb.sql(f"select uid from read_json_auto('{path}')").fetchall() == [("0",), ("1",)]


FOLDER = "folder"


def _label(path):
    """The kind of a dump file."""
    file = parse_name(Path(path))
    return file.kind if file else FOLDER


@pytest.fixture
def synced(monkeypatch):
    """What is forced to disk, with its size then, and what gets its final name."""
    calls = []
    fsync, rename = os.fsync, os.rename

    def recording_fsync(fd):
        fsync(fd)
        calls.append((_label(Path(f"/proc/self/fd/{fd}").readlink()), os.fstat(fd).st_size))

    def recording_rename(source, target, **options):
        rename(source, target, **options)
        calls.append((_label(target), "renamed"))

    monkeypatch.setattr(os, "fsync", recording_fsync)
    monkeypatch.setattr(os, "rename", recording_rename)
    return calls


def test_fsync_group_forces_text_then_ledger_before_the_group_is_acknowledged(tmp_path, synced):
    with DumpWriter(tmp_path, RUN_ID, 1, fsync="group") as writer:
        for uid in range(2):
            synced.clear()
            assert writer.submit([group(uid)]).result(5)
            sizes = {parse_name(path).kind: path.stat().st_size for path in tmp_path.glob("*.part")}
            text, ledger = ((kind, sizes[kind]) for kind in (FileKind.ROLLOUTS, FileKind.LEDGER))
            assert [call for call in synced if call[0] != FOLDER] == [text, ledger]
            names_synced = len(synced) - 2
            assert names_synced == (2 if uid == 0 else 0)  # once for each new file


def test_fsync_batch_forces_all_files_under_way_before_one_is_finished(tmp_path, synced):
    with DumpWriter(tmp_path, RUN_ID, 1, groups_per_file=3, failed_groups_per_file=1, fsync="batch") as writer:
        writer.submit([group(0)]).result(5)
        assert not synced
        writer.submit([group(1, [0.0])]).result(5)
        kinds = [kind for kind, _ in synced if kind != FOLDER]
        assert kinds == [FileKind.ROLLOUTS, FileKind.FAILED, FileKind.LEDGER, FileKind.FAILED]
        assert synced[-1] == (FileKind.FAILED, "renamed")


def test_a_group_that_could_not_be_forced_to_disk_is_not_acknowledged_and_tried_again(tmp_path, monkeypatch):
    """No disk here fails to sync: the one thing that is made up is the kernel's answer."""
    fsync, failures = os.fsync, iter([FileKind.LEDGER, FileKind.ROLLOUTS])
    failing = next(failures)

    def failing_fsync(fd):
        nonlocal failing
        if _label(Path(f"/proc/self/fd/{fd}").readlink()) == failing:
            failing = next(failures, None)
            raise OSError(errno.EIO, "Input/output error")
        fsync(fd)

    monkeypatch.setattr(os, "fsync", failing_fsync)
    with DumpWriter(tmp_path, RUN_ID, 1, fsync="group") as writer:
        assert not writer.submit([group(0)]).result(5)
        assert not list(tmp_path.glob("*.part"))
        assert not writer.submit([group(1)]).result(5)
        assert writer.missing == 2
        assert writer.submit([group(2)]).result(5)
    assert _read(tmp_path) == ["0", "1", "2"]
