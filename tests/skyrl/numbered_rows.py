"""Rows that tell who made them. Light to import, because worker processes do."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from rg_env.skyrl.row_maker import RowMaker


class Numbered:
    """Makes row n; the first process that makes row 5 fails.

    Args:
        flag: exists once it has failed; None: nothing fails.
        killed: whether it is killed, or raises.
    """

    def __init__(self, flag: Path | None = None, killed: bool = False) -> None:
        self.flag, self.killed = flag, killed

    def __call__(self, number: int) -> dict[str, int]:
        if number == 5 and self.flag is not None and not self.flag.exists():
            self.flag.touch()
            if self.killed:
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("no item today")
        return {"number": number, "pid": os.getpid()}


def linger() -> None:
    """Start workers, print their ids, and wait to be killed."""
    maker = RowMaker(Numbered(), 2)
    print(json.dumps(sorted({row.result()["pid"] for row in maker.submit(range(100))})), flush=True)
    time.sleep(600)
