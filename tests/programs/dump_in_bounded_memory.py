"""Keep groups in memory while the disk takes nothing, and write them when it does: FOLDER → how many were kept."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path
from typing import Any

from rg_env.dump import DumpWriter
from rg_env.dump import writer as dump_writer
from tests.dump.records import RUN_ID, group, rollout

GROUPS = 300


def peak() -> int:
    """The most bytes that this process has had. `getrusage` would count those of the process that started it."""
    line = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert line is not None
    return int(line[1]) << 10


def big_group(number: int) -> Any:
    text = chr(0x1F600 + number % 50) * 250_000  # a megabyte in memory
    return group(number, [rollout(conversation=[{"role": "assistant", "content": text}])])


if __name__ == "__main__":
    dump_writer.MAX_KEPT_BYTES = 32 << 20
    sys.dont_write_bytecode = True
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    with DumpWriter(sys.argv[1], RUN_ID, 1) as writer:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
        before = peak()
        for k in range(GROUPS):
            writer.submit([big_group(k)]).result(5)
        grown = (peak() - before) >> 20
        assert 30 < grown < 64, grown
        assert writer.missing == GROUPS
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        writer.write_blocking()
        print(GROUPS - writer.missing)
