"""Hold the lock of a run, with a child that has its descriptors: python -m tests.programs.dump_holder FOLDER RUN_ID"""

from __future__ import annotations

import os
import sys
import time

from rg_env.dump import DumpWriter

if __name__ == "__main__":
    writer = DumpWriter(sys.argv[1], sys.argv[2], 1)
    if not os.fork():
        print(os.getpid(), flush=True)
    time.sleep(60)
