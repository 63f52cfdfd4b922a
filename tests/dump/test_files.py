"""Names, locks, compressed files, and files that are renamed while they are read."""

from __future__ import annotations

import gzip
import os
import signal
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from backports import zstd
from filelock import FileLock

from rg_env.base.errors import DumpError
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import DumpWriter, FileKind, NewerSchemaError, open_lines, open_run, to_line
from rg_env.dump.files import RunLock, batch_name, is_held, lock_name, parse_name, try_folder
from rg_env.dump.validate import validate
from tests.dump.records import RUN_ID, group
from tests.running import ROOT, program


@pytest.mark.parametrize("run_id", ["20261121-053012-ab12cd34", "a_b_0001", "groups_7"])
@pytest.mark.parametrize("kind", FileKind)
@pytest.mark.parametrize("batch", [0, 12345])
def test_names_are_taken_apart_as_they_were_put_together(run_id, kind, batch):
    for ending in ("", ".part"):
        file = parse_name(Path(batch_name(kind, run_id, batch) + ending))
        assert (file.kind, file.run_id, file.batch, file.is_open) == (kind, run_id, batch, bool(ending))


def test_trying_a_folder_creates_nothing_that_another_run_could_stumble_over(tmp_path):
    def try_often(name):
        for number in range(100):
            try_folder(tmp_path / str(number) / name)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(try_often, "abcd"))
    assert not list(tmp_path.iterdir())


# -- the lock


def test_a_second_writer_is_told_who_the_first_one_is_and_the_lock_goes_with_it_though_its_child_lives(tmp_path):
    holder = subprocess.Popen(program("dump_holder", tmp_path, RUN_ID), stdout=subprocess.PIPE, text=True, cwd=ROOT)
    child = int(holder.stdout.readline())
    try:
        with pytest.raises(DumpError) as error:
            DumpWriter(tmp_path, RUN_ID, 2)
        assert f"by process {holder.pid} on {socket.gethostname()}" in str(error.value)
        assert "\n" not in str(error.value)
        holder.kill()
        holder.wait()
        DumpWriter(tmp_path, RUN_ID, 2).close()
        assert not list(tmp_path.iterdir())
    finally:
        holder.kill()
        os.kill(child, signal.SIGKILL)


def test_a_writer_that_could_not_start_lets_go_of_the_lock(tmp_path):
    part = tmp_path / f"{batch_name(FileKind.ROLLOUTS, RUN_ID, 0)}.part"
    part.write_bytes(to_line(group(0)).replace(b'"schema_version":', b'"schema_version":9'))
    with pytest.raises(NewerSchemaError):
        DumpWriter(tmp_path, RUN_ID, 2)
    part.unlink()
    DumpWriter(tmp_path, RUN_ID, 2).close()


def test_whether_a_run_is_being_written_is_known_and_leaves_nothing(tmp_path):
    lock = RunLock(tmp_path, RUN_ID)
    assert is_held(tmp_path, RUN_ID)
    lock.release()
    assert not list(tmp_path.iterdir())
    (tmp_path / lock_name(RUN_ID)).write_text("process 17 on elsewhere\n")  # left by a crash
    assert not is_held(tmp_path, RUN_ID)
    RunLock(tmp_path, RUN_ID).release()


def test_who_asks_whether_a_run_is_written_keeps_nobody_from_writing_it(tmp_path, monkeypatch):
    monkeypatch.setattr("rg_env.dump.files._LOCK_SECONDS", 60.0)
    asking = FileLock(tmp_path / lock_name(RUN_ID), thread_local=False)
    asking.acquire()
    threading.Timer(0.05, asking.release).start()
    RunLock(tmp_path, RUN_ID).release()


# -- other forms of a file


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    with DumpWriter(tmp_path, RUN_ID, 1, RGDumpConfig(groups_per_file=3)) as writer:
        writer.submit([group(k) for k in range(7)])
    return tmp_path


COMPRESS = {".zst": zstd.compress, ".gz": gzip.compress}


def _compress(path: Path, ending: str) -> Path:
    compressed = path.with_name(path.name + ending)
    compressed.write_bytes(COMPRESS[ending](path.read_bytes()))
    path.unlink()
    return compressed


@pytest.mark.parametrize("ending", COMPRESS)
def test_a_compressed_dump_is_the_same_dump(dump, ending):
    found = open_run(dump)
    before, rows, texts = list(found.groups()), found.ledger_frame(), found.scan(texts=True).collect()
    for path in dump.glob("*.jsonl"):
        _compress(path, ending)
    for folder in (dump, *dump.glob("*_ledger_*_0000*")):
        assert open_run(folder).ledger_frame().equals(rows.head(6) if folder != dump else rows)
    found = open_run(dump)
    assert list(found.groups()) == before and found.scan(texts=True).collect().equals(texts)
    assert [found.text(RUN_ID, each.group_id) for each in reversed(before)] == before[::-1]
    assert validate(dump).good
    # A copy beside it counts once.
    path = next(dump.glob("*_rollouts_*_0000*"))
    with open_lines(path) as lines:
        path.with_suffix("").write_bytes(lines.read())
    assert list(open_run(dump).groups()) == before
    assert open_run(dump).findings().counts["duplicate"] == 3
    # The next attempt does not write what is there.
    with DumpWriter(dump, RUN_ID, 2, RGDumpConfig(groups_per_file=3)) as writer:
        writer.submit([group(9, attempt=2, step=9)])
    assert len(list(open_run(dump).groups())) == 8


@pytest.mark.parametrize("ending", COMPRESS)
def test_files_that_get_their_later_names_after_they_were_found_are_read(dump, ending):
    final = next(dump.glob("*_ledger_*_0000.jsonl"))
    part = final.with_name(final.name + ".part")
    content = final.read_bytes()
    with open_lines(part) as lines:
        assert lines.read() == content
    _compress(final, ending)
    for name in (part, final):
        with open_lines(name) as lines:
            assert b"".join(lines) == content
    with pytest.raises(FileNotFoundError), open_lines(dump / "nothing.jsonl.part"):
        pass


@pytest.mark.parametrize("ending", COMPRESS)
@pytest.mark.parametrize("is_short", [True, False])
def test_corrupt_compressed_data_cost_only_what_comes_after_them(dump, ending, is_short):
    path = _compress(next(dump.glob("*_ledger_*_0000.jsonl")), ending)
    content = path.read_bytes()
    path.write_bytes(content[:-30] if is_short else content[:30] + bytes(30) + content[60:])
    for read in (lambda found: list(found.ledger()), lambda found: found.ledger_frame()):
        found = open_run(dump)
        read(found)
        (problem,) = (each for each in found.findings(texts=False) if each.kind == "corrupt_line")
        assert f"0000.jsonl{ending}" in str(problem)
        assert "corrupt compressed data" in str(problem)


def test_a_compression_that_is_not_read_is_said(dump):
    for path in dump.glob("*.jsonl"):
        path.rename(f"{path}.xz")
    with pytest.raises(DumpError, match=r"end in \.jsonl\.xz, which is not read: unpack them"):
        open_run(dump)
