"""Write a group for whose line there is no memory, and then there is: FOLDER."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from rg_env.dump import DumpWriter
from tests.dump.records import RUN_ID, group, rollout

if __name__ == "__main__":
    turn = {"role": "assistant", "content": "word " * 1000}
    large = group(1, [rollout(conversation=[turn] * 10_000)])  # a line of 50 MB, from few objects
    with DumpWriter(sys.argv[1], RUN_ID, 1) as writer:
        assert writer.submit([group(0)]).result(60)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (24 << 20), hard))
        assert not writer.submit([large]).result(60)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        assert writer.write_blocking()
