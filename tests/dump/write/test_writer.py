from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import pytest

from rg_env.dump import DumpPolicy, DumpWriter, FileKind, NotKept, TrainedRecord, open_run, record_from_line
from rg_env.dump.files import list_files
from rg_env.dump.write import batch
from rg_env.dump.write.writer import _OPEN
from rg_env.errors import DumpError
from tests.dump.records import RUN_ID, group, lines_of, names, rollout, uids

ONE_OF_EACH = [[1.0, 0.0], [0.0, 0.0], [0.5, 0.0]]


@pytest.fixture
def stuck_disk(monkeypatch):
    """Every write waits until the event is set."""
    go = threading.Event()
    real = batch.write_all

    def slow(fd, data):
        go.wait(10)
        return real(fd, data)

    monkeypatch.setattr(batch, "write_all", slow)
    yield go
    go.set()


def test_every_group_is_in_the_ledger_in_order_and_its_text_where_the_policy_says(tmp_path):
    groups = [group(k, ONE_OF_EACH[k % 3]) for k in range(9)] + [group(9, phase="eval")]
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
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
    with DumpWriter(tmp_path, RUN_ID, 1, groups_per_file=4) as writer:
        writer.submit([group(k, ONE_OF_EACH[k % 2]) for k in range(10)]).result(5)
        assert names(tmp_path) == {
            "rollouts_0000.jsonl",
            "rollouts_0001.jsonl.part",
            "FAILED_rollouts_0000.jsonl",
            "FAILED_rollouts_0001.jsonl.part",
            "groups_0000.jsonl",
            "groups_0001.jsonl",
            "groups_0002.jsonl.part",
            "lock",
        }
        for path in tmp_path.glob("*_groups_*.jsonl"):
            assert len(path.read_bytes().splitlines()) == 4
    assert not {name for name in names(tmp_path) if "part" in name or "lock" in name}
    assert uids(tmp_path) == [str(k) for k in range(10)]
    assert uids(tmp_path, FileKind.ROLLOUTS) == ["0", "2", "4", "6", "8"]


def test_a_later_attempt_goes_on_in_the_next_batch_and_overwrites_nothing(tmp_path):
    for attempt in (1, 2):
        with DumpWriter(tmp_path, RUN_ID, attempt) as writer:
            writer.submit([group(attempt, attempt=attempt)])
    assert names(tmp_path) == {f"{kind}_000{batch}.jsonl" for kind in ("rollouts", "groups") for batch in (0, 1)}
    assert uids(tmp_path) == ["1", "2"]


def test_a_name_taken_by_somebody_else_is_not_overwritten(tmp_path):
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        writer.submit([group(0)]).result(5)
        for path in list(tmp_path.glob("*.part")):
            path.with_suffix("").write_text("theirs")
    assert {path.read_text() for path in tmp_path.glob("*_0000.jsonl")} == {"theirs"}
    assert len(list(tmp_path.glob("*_0001.jsonl"))) == 2


def test_nothing_written_leaves_no_file(tmp_path):
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        assert writer.submit([]).result(5)
    assert not list(tmp_path.iterdir())


def test_two_runs_share_a_folder(tmp_path):
    with DumpWriter(tmp_path, "run-a", 1) as a, DumpWriter(tmp_path, "run-b", 1) as b:
        a.submit([group("a", run_id="run-a")])
        b.submit([group("b", run_id="run-b")])
    assert sorted(uids(tmp_path)) == ["a", "b"]


def test_generate_waits_for_a_disk_that_hangs_and_says_so(tmp_path, stuck_disk, monkeypatch, log):
    monkeypatch.setattr("rg_env.dump.write.writer.LOG_SECONDS", 0.01)

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
    assert any(line.startswith("WARNING dump: waiting for the disk") for line in log)


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
        monkeypatch.setattr(writer, "_hand_over", lambda groups, size: written)
        asyncio.run(generate())


@pytest.fixture
def slow_disk(monkeypatch):
    """Every write takes some time. Yields what waited at each of them, in bytes."""
    waiting: list[int] = []
    real = os.write

    def slow(fd, data):
        waiting.extend(writer._queue.waiting_bytes for writer in _OPEN)
        time.sleep(0.002)
        return real(fd, data)

    monkeypatch.setattr("rg_env.dump.write.batch.os.write", slow)
    return waiting


@pytest.mark.parametrize("how", ["write", "submit"])
def test_a_batch_ten_times_what_may_wait_is_written_whole_to_a_slow_disk(tmp_path, slow_disk, monkeypatch, log, how):
    """Nothing is lost, and no more waits than may. The prompt is one text in memory, and counts once."""
    monkeypatch.setattr("rg_env.dump.write.writer.LOG_SECONDS", 0.001)
    prompt = {"role": "user", "content": "?" * 20_000}
    texts = [{"role": "assistant", "content": "→" + "x" * 5_000} for _ in range(8)]
    groups = [group(k, [rollout(1.0, n, conversation=[prompt, texts[n]]) for n in range(8)]) for k in range(60)]
    limit = 60 * 65_000 // 10
    with DumpWriter(tmp_path, RUN_ID, 1, max_pending_bytes=limit) as writer:
        if how == "write":
            assert asyncio.run(writer.write(groups))
        else:
            assert writer.submit(groups).result(20)
        assert writer.missing == 0
    assert uids(tmp_path) == uids(tmp_path, FileKind.ROLLOUTS) == [str(k) for k in range(60)]
    assert limit / 2 < max(slow_disk) <= limit
    assert any("waiting for the disk" in line for line in log)


def test_a_group_larger_than_what_may_wait_is_written(tmp_path):
    big = group(0, [rollout(conversation=[{"role": "assistant", "content": "x" * 50_000}])])
    with DumpWriter(tmp_path, RUN_ID, 1, max_pending_bytes=1000) as writer:
        assert asyncio.run(writer.write([big, group(1), big]))
    assert uids(tmp_path) == ["0", "1", "0"]


def test_a_record_that_cannot_be_json_costs_itself_only(tmp_path, log):
    broken = group(1, step=1 << 70)  # beyond what JSON readers take for a number
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        assert not writer.submit([group(0), broken, group(2)]).result(5)
        assert writer.missing == 1
    assert uids(tmp_path) == uids(tmp_path, FileKind.ROLLOUTS) == ["0", "2"]
    assert any("1 record dropped, it cannot be written as JSON" in line for line in log)


def test_close_may_be_called_again_and_late_groups_are_refused(tmp_path, log):
    writer = DumpWriter(tmp_path, RUN_ID, 1)
    writer.submit([group(0)])
    assert writer.close() == 0
    assert not writer.submit([group(1)]).result(0)
    assert writer.close() == 1
    assert uids(tmp_path) == ["0"]
    assert [line for line in log if line.startswith("ERROR")] == [
        "ERROR dump: 1 record dropped so far, the dump is closed; training continues"
    ]


_EXIT = """
import os, signal, sys
from rg_env.dump import DumpWriter, close_all
from tests.dump.records import group

def stop(*_):
    close_all()
    os._exit(3)

signal.signal(signal.SIGTERM, stop)
writer = DumpWriter(sys.argv[1], "run", 1)
for k in range(20):
    writer.submit([group(k, run_id="run")])
    if sys.argv[2] == "sigterm" and k == 10:
        os.kill(os.getpid(), signal.SIGTERM)
if sys.argv[2] == "exception":
    raise RuntimeError
"""


@pytest.mark.parametrize(("how", "code", "count"), [("end", 0, 20), ("exception", 1, 20), ("sigterm", 3, 11)])
def test_all_is_written_at_the_end_of_the_process_however_it_ends(tmp_path, how, code, count):
    child = subprocess.run([sys.executable, "-c", _EXIT, tmp_path, how], capture_output=True, timeout=60, check=False)
    assert child.returncode == code, child.stderr.decode()
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
    with DumpWriter(tmp_path, RUN_ID, 1, groups_per_file=2) as writer:
        writer.submit([group(0), group(1)])
        assert writer.submit(_trained(1, 2, 4)).result(5)
        writer.submit([group(2)])
        assert writer.submit(_trained(2, 2)).result(5)
        assert writer.missing == 0
    lines = [line for file in list_files(tmp_path) if file.kind is FileKind.TRAINED for line in file.path.open("rb")]
    assert [record_from_line(TrainedRecord, line) for line in lines] == _trained(1, 2, 4) + _trained(2, 2)
    assert {"trained_0000.jsonl", "trained_0001.jsonl"} <= names(tmp_path)
    dump = open_run(tmp_path)
    assert [record.uid for record in dump.ledger()] == [record.uid for record in dump.groups()] == ["0", "1", "2"]
    assert not dump.problems


@pytest.mark.parametrize(
    ("policy", "groups", "reasons"),
    [
        (DumpPolicy(dump_rollouts=False), [[1.0], [1.0, 0.0]], ["2 because dump_rollouts=false"]),
        (DumpPolicy(threshold=1.0), [[1.0]], ["1 because no score was above rollout_save_score_threshold=1"]),
        (
            DumpPolicy(dump_failed_rollouts=False, threshold=0.5),
            [[0.0], [0.5]],
            ["1 because dump_failed_rollouts=false", "rollout_save_score_threshold=0.5 and dump_other_rollouts=false"],
        ),
        (DumpPolicy(dump_rollouts=False), [[1.0], [0.0]], []),
        (DumpPolicy(), [], []),
    ],
)
def test_a_run_that_kept_no_text_ends_with_the_reason(tmp_path, log, policy, groups, reasons):
    with DumpWriter(tmp_path, RUN_ID, 1, policy=policy) as writer:
        writer.submit([group(number, scores) for number, scores in enumerate(groups)])
    lines = [line for line in log if "the text of no group was kept" in line]
    assert len(lines) == bool(reasons)
    assert all(reason in lines[0] for reason in reasons)


def test_a_second_run_in_a_folder_is_said_and_a_resumed_one_is_not(tmp_path, warnings):
    for attempt in (1, 2):
        with DumpWriter(tmp_path, RUN_ID, attempt) as writer:
            assert writer.submit([group(attempt)]).result(5)
    assert warnings == []
    with DumpWriter(tmp_path, "another", 1):
        assert len(warnings) == 1 and warnings[0].startswith(f"{tmp_path} already holds other runs (1); ")
