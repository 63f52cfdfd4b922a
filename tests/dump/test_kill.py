"""A writing process is killed with SIGKILL; what it had been told is on disk must be there, once, whole, in order."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rg_env.dump import DumpWriter, FileKind, open_run
from tests.dump.records import RUN_ID, group, lines_of, names, uids

_WRITE = """
import sys
from rg_env.dump import DumpWriter
from tests.dump.records import RUN_ID, group

writer = DumpWriter(sys.argv[1], RUN_ID, 1, groups_per_file=7, failed_groups_per_file=3)
for k in range(0, 100_000, 5):
    batch = [group(uid, [1.0, 0.0] if uid % 3 else [0.0, 0.0]) for uid in range(k, k + 5)]
    assert writer.submit(batch).result(5)
    print(k + 5, flush=True)
"""


def _killed_writer(folder: Path, at_least: int, delay: float) -> int:
    """How many groups had been acknowledged when the process died."""
    child = subprocess.Popen([sys.executable, "-c", _WRITE, folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    acknowledged = 0
    while acknowledged < at_least:
        acknowledged = int(child.stdout.readline())
    time.sleep(delay)  # not for anything to happen: to die anywhere in the write that is under way
    os.kill(child.pid, signal.SIGKILL)
    last = child.stdout.read().splitlines()
    child.wait()
    return int(last[-1]) if last else acknowledged


@pytest.mark.parametrize(("at_least", "seed"), [(5, 1), (35, 2), (200, 3), (500, 4)])
def test_what_was_acknowledged_survives_sigkill(tmp_path, at_least, seed):
    acknowledged = _killed_writer(tmp_path, at_least, random.Random(seed).random() / 500)
    promised = [str(uid) for uid in range(acknowledged)]

    # As it was left, before anything is repaired:
    left = open_run(tmp_path)
    assert [record.uid for record in left.ledger()][:acknowledged] == promised
    texts = {record.uid for record in left.groups()}
    assert texts >= set(promised)
    for path in tmp_path.glob("*.jsonl"):
        assert path.read_bytes().endswith(b"}\n")

    # As the next attempt finds it:
    with DumpWriter(tmp_path, RUN_ID, 2) as writer:
        writer.submit([group("next", attempt=2)])
    assert not [name for name in names(tmp_path) if not name.endswith(".jsonl")]
    ledger = uids(tmp_path)
    assert ledger[:acknowledged] == promised
    assert ledger[-1] == "next"
    assert len(set(ledger)) == len(ledger)
    kept = uids(tmp_path, FileKind.ROLLOUTS) + uids(tmp_path, FileKind.FAILED)
    assert sorted(kept) == sorted(ledger)
    assert not open_run(tmp_path).problems
    assert {line["text"] for line in lines_of(tmp_path, FileKind.LEDGER)} == {"rollouts", "FAILED_rollouts"}
