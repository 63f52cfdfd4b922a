from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

from rg_env.dump import DumpWriter, FileKind, NewerSchemaError, open_run, to_line
from rg_env.dump.files import batch_name, lock_name
from rg_env.dump.lock import RunLock, is_held
from rg_env.errors import DumpError
from tests.dump.records import RUN_ID, group, uids

_HOLD = """
import sys, time
from rg_env.dump import DumpWriter
writer = DumpWriter(sys.argv[1], sys.argv[2], 1)
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", _HOLD, tmp_path, RUN_ID], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.wait()


def test_a_second_writer_is_told_who_the_first_one_is(tmp_path, holder):
    with pytest.raises(DumpError) as error:
        DumpWriter(tmp_path, RUN_ID, 2)
    assert f"by process {holder.pid} on {socket.gethostname()}" in str(error.value)
    assert "\n" not in str(error.value)


def test_another_run_is_not_held_up(tmp_path, holder):
    with DumpWriter(tmp_path, "another", 1) as writer:
        assert writer.submit([group(0, run_id="another")]).result(5)
    assert uids(tmp_path) == ["0"]


def test_the_lock_goes_with_the_process(tmp_path, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with DumpWriter(tmp_path, RUN_ID, 2):
        pass
    assert not list(tmp_path.iterdir())


_KILLED_WITH_A_CHILD = """
import os, signal, sys, time
from rg_env.dump import DumpWriter
writer = DumpWriter(sys.argv[1], sys.argv[2], 1)
if not os.fork():
    print(os.getpid(), flush=True)
    os.kill(os.getppid(), signal.SIGKILL)
time.sleep(60)
"""


def test_a_surviving_child_of_a_killed_writer_does_not_keep_the_lock(tmp_path):
    killed = subprocess.Popen(
        [sys.executable, "-c", _KILLED_WITH_A_CHILD, tmp_path, RUN_ID], stdout=subprocess.PIPE, text=True
    )
    child = int(killed.stdout.readline())
    killed.wait()
    try:
        DumpWriter(tmp_path, RUN_ID, 2).close()
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_writer_that_could_not_start_lets_go_of_the_lock(tmp_path):
    part = tmp_path / f"{batch_name(FileKind.ROLLOUTS, RUN_ID, 0)}.part"
    part.write_bytes(to_line(group(0)).replace(b'"schema_version":', b'"schema_version":9'))
    with pytest.raises(NewerSchemaError):
        DumpWriter(tmp_path, RUN_ID, 2)
    part.unlink()
    DumpWriter(tmp_path, RUN_ID, 2).close()


def test_a_lock_file_that_was_removed_is_not_taken_for_the_lock(tmp_path):
    lock = RunLock(tmp_path, RUN_ID)
    with pytest.raises(DumpError, match=f"by process {os.getpid()} "):
        RunLock(tmp_path, RUN_ID)
    (tmp_path / lock_name(RUN_ID)).unlink()
    assert not lock.in_place()
    lock.release()
    again = RunLock(tmp_path, RUN_ID)
    assert is_held(tmp_path, RUN_ID)
    again.release()
    assert not is_held(tmp_path, RUN_ID)
    assert not list(tmp_path.iterdir())


def test_a_run_that_crashed_on_another_host_goes_on_here_with_a_warning(tmp_path, log):
    """Where locks do not reach over hosts, this is all there is to tell a crash from a second writer."""
    (tmp_path / lock_name(RUN_ID)).write_text("process 17 on elsewhere\n")
    with DumpWriter(tmp_path, RUN_ID, 2) as writer:
        assert writer.submit([group(0)]).result(5)
    (said,) = [line for line in log if line.startswith("WARNING")]
    assert "process 17 on elsewhere, which exited uncleanly; if it is still running, stop it" in said


_HOST = """
import socket, sys
socket.gethostname = lambda: sys.argv[3]
from rg_env.dump import DumpWriter
from tests.dump.records import group
with DumpWriter(sys.argv[1], sys.argv[2], 1, groups_per_file=2) as writer:
    for k in range(20):
        writer.submit([group(f"{sys.argv[3]}-{k}", run_id=sys.argv[2])])
"""


def test_runs_of_two_hosts_share_a_folder(tmp_path):
    """Two processes stand for the hosts."""
    hosts = [
        subprocess.Popen([sys.executable, "-c", _HOST, tmp_path, run_id, host])
        for host, run_id in (("red", "20261121-053012-aaaaaaaa"), ("blue", "20261121-053012-bbbbbbbb"))
    ]
    assert [host.wait(60) for host in hosts] == [0, 0]
    assert sorted(uids(tmp_path)) == sorted(f"{host}-{k}" for host in ("red", "blue") for k in range(20))
    assert len(open_run(tmp_path).runs) == 2
