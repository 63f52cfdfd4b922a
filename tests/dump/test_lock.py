from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

from rg_env.dump import DumpWriter, FileKind, NewerSchemaError, to_line
from rg_env.dump.files import RunLock, batch_name, is_held, lock_name
from rg_env.errors import DumpError
from tests.dump.records import RUN_ID, group

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


def test_whether_a_run_is_being_written_is_known_and_leaves_nothing(tmp_path):
    lock = RunLock(tmp_path, RUN_ID)
    with pytest.raises(DumpError, match=f"by process {os.getpid()} "):
        RunLock(tmp_path, RUN_ID)
    assert is_held(tmp_path, RUN_ID)
    lock.release()
    assert not list(tmp_path.iterdir())
    (tmp_path / lock_name(RUN_ID)).write_text("process 17 on elsewhere\n")  # left by a crash
    assert not is_held(tmp_path, RUN_ID)
    RunLock(tmp_path, RUN_ID).release()
