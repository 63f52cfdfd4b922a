"""Write twenty groups and end: python -m tests.programs.dump_until_end FOLDER end|exception|sigterm"""

from __future__ import annotations

import os
import signal
import sys

from rg_env.dump import DumpWriter, close_all
from tests.dump.records import group


def stop(*_: object) -> None:
    close_all()
    os._exit(3)


if __name__ == "__main__":
    _, folder, how = sys.argv
    signal.signal(signal.SIGTERM, stop)
    writer = DumpWriter(folder, "run", 1)
    for k in range(20):
        writer.submit([group(k, run_id="run")])
        if how == "sigterm" and k == 10:
            os.kill(os.getpid(), signal.SIGTERM)
    if how == "exception":
        raise RuntimeError
