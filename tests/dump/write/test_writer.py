from __future__ import annotations

import asyncio
import errno
import os
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from rg_env.base.errors import DumpError
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import (
    Attempt,
    DumpWriter,
    FileKind,
    NotKept,
    TrainedRecord,
    from_line,
    open_run,
    part_file,
    write_manifest,
)
from rg_env.dump.files import list_files
from rg_env.dump.manifest import read_manifest
from tests.dump.records import RUN_ID, group, lines_of, names, uids
from tests.running import run_program

ONE_OF_EACH = [[1.0, 0.0], [0.0, 0.0], [0.5, 0.0]]


@pytest.fixture
def stuck_disk(monkeypatch):
    """Every write waits until the event is set."""
    go = threading.Event()
    real = part_file.write_all

    def slow(fd, data):
        go.wait(10)
        return real(fd, data)

    monkeypatch.setattr(part_file, "write_all", slow)
    yield go
    go.set()


def test_every_group_is_in_the_ledger_in_order_and_its_text_where_the_settings_say(tmp_path):
    groups = [group(k, ONE_OF_EACH[k % 3]) for k in range(9)] + [group(9, phase="eval")]
    config = RGDumpConfig(dump_other_rollouts=False, dump_eval_rollouts=False)
    with DumpWriter(tmp_path, RUN_ID, 1, config) as writer:
        assert writer.submit(groups[:4]).result(5)
        assert writer.submit(groups[4:]).result(5)
    assert uids(tmp_path) == [str(k) for k in range(10)]
    assert uids(tmp_path, FileKind.ROLLOUTS) == ["0", "3", "6"]
    assert uids(tmp_path, FileKind.FAILED) == ["1", "4", "7"]
    ledger = lines_of(tmp_path, FileKind.LEDGER)
    assert [line["text"] for line in ledger[:3]] == [FileKind.ROLLOUTS, FileKind.FAILED, ""]
    assert [line["text_reason"] for line in ledger[:3]] == ["", "", NotKept.OTHER_OFF]
    assert ledger[-1]["text_reason"] == NotKept.EVAL_OFF


def test_full_batches_are_finished_and_the_one_under_way_is_a_part(tmp_path):
    with DumpWriter(tmp_path, RUN_ID, 1, RGDumpConfig(groups_per_file=4)) as writer:
        writer.submit([group(k, ONE_OF_EACH[k % 2]) for k in range(10)]).result(5)
        assert writer.progress == "current files: 1/4 above the threshold, 1/4 all wrong"
        assert names(tmp_path) == {
            "rollouts_0000.jsonl",
            "rollouts_0001.jsonl.part",
            "FAILED_rollouts_0000.jsonl",
            "FAILED_rollouts_0001.jsonl.part",
            "ledger_0000.jsonl",
            "ledger_0001.jsonl",
            "ledger_0002.jsonl.part",
            "lock",
        }
        for path in tmp_path.glob("*_ledger_*.jsonl"):
            assert len(path.read_bytes().splitlines()) == 4
    assert not {name for name in names(tmp_path) if "part" in name or "lock" in name}
    assert uids(tmp_path) == [str(k) for k in range(10)]
    assert uids(tmp_path, FileKind.ROLLOUTS) == ["0", "2", "4", "6", "8"]


def test_a_later_attempt_goes_on_in_the_next_batch_and_one_that_writes_nothing_leaves_no_file(tmp_path):
    for attempt in (1, 2, 3):
        with DumpWriter(tmp_path, RUN_ID, attempt) as writer:
            writer.submit([group(attempt, attempt=attempt)] * (attempt < 3))
    assert names(tmp_path) == {f"{kind}_000{batch}.jsonl" for kind in ("rollouts", "ledger") for batch in (0, 1)}
    assert uids(tmp_path) == ["1", "2"]


def test_a_name_taken_by_somebody_else_is_not_overwritten(tmp_path):
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        writer.submit([group(0)]).result(5)
        for path in list(tmp_path.glob("*.part")):
            path.with_suffix("").write_text("theirs")
    assert {path.read_text() for path in tmp_path.glob("*_0000.jsonl")} == {"theirs"}
    assert len(list(tmp_path.glob("*_0001.jsonl"))) == 2


def test_generate_waits_for_a_disk_that_hangs_and_says_so(tmp_path, stuck_disk, monkeypatch, log):
    monkeypatch.setattr("rg_env.dump.writer.LOG_SECONDS", 0.01)

    async def generate() -> None:
        writing = asyncio.ensure_future(writer.write([group(0), group(1)]))
        await asyncio.sleep(0.1)
        assert not writing.done() and writer.missing == 2
        stuck_disk.set()
        assert await writing
        assert writer.missing == 0

    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        asyncio.run(generate())
    assert uids(tmp_path) == ["0", "1"]
    assert any("waiting for the disk" in line and "2 groups not written" in line for line in log)


def test_callers_without_a_loop_and_the_end_wait_for_a_disk_that_hangs_and_say_so(
    tmp_path, stuck_disk, monkeypatch, log
):
    monkeypatch.setattr("rg_env.dump.writer.LOG_SECONDS", 0.01)
    writer = DumpWriter(tmp_path, RUN_ID, 1)
    writer.submit([group(0)])
    threading.Timer(0.1, stuck_disk.set).start()
    assert writer.write_blocking()
    said = sum("waiting for the disk" in line for line in log)
    assert said and writer.missing == 0
    stuck_disk.clear()
    writer.submit([group(k) for k in range(1, 20)])
    threading.Timer(0.1, stuck_disk.set).start()
    assert writer.close() == 0
    assert uids(tmp_path) == [str(k) for k in range(20)]
    assert sum("waiting for the disk" in line for line in log) > said


def test_a_cancelled_caller_does_not_cancel_its_write(tmp_path, stuck_disk):
    async def generate() -> None:
        task = asyncio.ensure_future(writer.write([group(0)]))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        asyncio.run(generate())
        stuck_disk.set()
    assert uids(tmp_path) == ["0"]


@pytest.mark.parametrize("ticks", range(8))
def test_a_cancellation_while_a_write_completes_is_not_lost(tmp_path: Path, monkeypatch, ticks: int) -> None:
    """SkyRL's asynchronous loop cancels its workers at the end, and would wait forever for one that goes on."""
    written: Future[bool] = Future()
    written.set_running_or_notify_cancel()

    async def generate() -> None:
        task = asyncio.ensure_future(writer.write([group(0)]))
        await asyncio.sleep(0)
        written.set_result(True)
        for _ in range(ticks):
            await asyncio.sleep(0)
        was_waiting = task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() == was_waiting

    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        monkeypatch.setattr(writer, "submit", lambda groups: written)
        asyncio.run(generate())


def test_a_record_that_cannot_be_json_costs_itself_only(tmp_path, log):
    broken = group(1, task="\ud800")
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        writer.submit([group(0), broken, group(2)]).result(5)
        assert writer.missing == 1
    assert uids(tmp_path) == uids(tmp_path, FileKind.ROLLOUTS) == ["0", "2"]
    assert any("1 record refused, it cannot be written as JSON" in line for line in log)


def test_a_record_of_training_that_cannot_be_json_is_no_missing_group(tmp_path, log):
    trained = TrainedRecord(RUN_ID, 1, 1, group(0).group_id, 1, [0])
    broken = TrainedRecord(RUN_ID, 1, 1, group(0).group_id, 1, ["\ud800"])
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        writer.submit([group(0), broken, trained]).result(5)
        assert writer.missing == 0
    assert uids(tmp_path) == ["0"]
    assert [record.group_id for record in open_run(tmp_path).trained()] == [trained.group_id]
    assert any("1 record refused, it cannot be written as JSON" in line for line in log)


def test_close_may_be_called_again_and_late_groups_are_refused(tmp_path, log):
    writer = DumpWriter(tmp_path, RUN_ID, 1)
    writer.submit([group(0)])
    assert writer.close() == 0
    assert not writer.submit([group(1)]).result(0)
    assert writer.close() == 1
    assert uids(tmp_path) == ["0"]
    assert [line for line in log if line.startswith("ERROR")] == ["ERROR dump: 1 record refused, the dump is closed"]


@pytest.mark.parametrize(("how", "code", "count"), [("end", 0, 20), ("exception", 1, 20), ("sigterm", 3, 11)])
def test_all_is_written_at_the_end_of_the_process_however_it_ends(tmp_path, how, code, count):
    child = run_program("dump_until_end", tmp_path, how, check=False)
    assert child.returncode == code, child.stderr
    assert uids(tmp_path) == [str(k) for k in range(count)]
    assert not list(tmp_path.glob("*.part"))


def test_a_forked_child_has_nothing_to_do_with_its_parents_record(tmp_path, stuck_disk):
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        waiting = writer.submit([group(0)])
        pid = os.fork()
        if not pid:
            os._exit(writer.close())  # the number of groups it thinks are missing
        assert os.waitpid(pid, 0)[1] == 0
        stuck_disk.set()
        assert waiting.result(5)
        assert writer.submit([group(1)]).result(5)
    assert uids(tmp_path) == ["0", "1"]


def test_an_unusable_folder_is_refused_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DumpError, match="cannot be written") as error:
        DumpWriter(tmp_path / "file" / "dumps", RUN_ID, 1)
    assert "\n" not in str(error.value)


def _trained(step: int, *rollouts: int) -> list[TrainedRecord]:
    return [TrainedRecord(RUN_ID, 1, step, group(k).group_id, count) for k, count in enumerate(rollouts)]


def test_what_was_trained_on_is_recorded_in_order_in_files_of_its_own(tmp_path):
    with DumpWriter(tmp_path, RUN_ID, 1, RGDumpConfig(groups_per_file=2)) as writer:
        writer.submit([group(0), group(1)])
        assert writer.submit(_trained(1, 2, 4)).result(5)
        writer.submit([group(2)])
        assert writer.submit(_trained(2, 2)).result(5)
        assert writer.missing == 0
    lines = [line for file in list_files(tmp_path) if file.kind is FileKind.TRAINED for line in file.path.open("rb")]
    assert [from_line(TrainedRecord, line) for line in lines] == _trained(1, 2, 4) + _trained(2, 2)
    assert {"trained_0000.jsonl", "trained_0001.jsonl"} <= names(tmp_path)
    dump = open_run(tmp_path)
    assert [record.uid for record in dump.ledger()] == [record.uid for record in dump.groups()] == ["0", "1", "2"]
    assert not dump.findings().counts["corrupt_line"]


def test_a_second_run_in_a_folder_is_said_and_a_resumed_one_is_not(tmp_path, warnings):
    for attempt in (1, 2):
        with DumpWriter(tmp_path, RUN_ID, attempt) as writer:
            assert writer.submit([group(attempt)]).result(5)
    assert warnings == []
    with DumpWriter(tmp_path, RUN_ID, 3) as writer, DumpWriter(tmp_path, "another", 1) as other:
        assert len(warnings) == 1 and warnings[0].startswith(f"{tmp_path} already holds other runs (1); ")
        writer.submit([group("a")])
        other.submit([group("b", run_id="another")])
    assert sorted(uids(tmp_path)) == ["1", "2", "a", "b"]


def test_the_manifest_says_how_the_run_ended(tmp_path):
    for attempt in (1, 2):
        writer = DumpWriter(tmp_path, RUN_ID, attempt)
        write_manifest(tmp_path, RUN_ID, Attempt(attempt=attempt))
        assert not read_manifest(tmp_path, RUN_ID).ended
        writer.close()
    manifest = read_manifest(tmp_path, RUN_ID)
    assert [manifest.missing_groups] + [start.missing_groups for start in manifest.attempts] == [0, 0, 0]
    assert manifest.ended and all(start.ended for start in manifest.attempts)


def test_the_manifest_of_a_full_disk_says_what_is_missing(tmp_path, monkeypatch):
    writer = DumpWriter(tmp_path, RUN_ID, 1)
    write_manifest(tmp_path, RUN_ID, Attempt(attempt=1, settings={str(k): k for k in range(99)}))

    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("rg_env.dump.manifest.replace_bytes", full)
    writer._unwritten.add("a group")
    assert writer.close() == 1
    manifest = read_manifest(tmp_path, RUN_ID)
    assert manifest.missing_groups == manifest.attempts[0].missing_groups == 1
    assert manifest.settings["98"] == 98
