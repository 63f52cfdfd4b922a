"""A supervised command whose work is one of the functions below: python -m tests.programs.supervised WORK READY

READY is a file that appears when the work has begun. Beside it, `pids` lists the processes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import rg_env.base.processes
from rg_env.base.errors import ConfigError, MissingGroupsError
from rg_env.base.processes import ray_folder
from rg_env.terminal.reports import Reports
from rg_env.terminal.screen import Screen
from rg_env.terminal.supervisor import supervise

READY = Path(sys.argv[2])


def begin(*children: subprocess.Popen[bytes]) -> None:
    ray_folder().joinpath("socket").write_text("")
    (READY.parent / "pids").write_text(json.dumps([os.getpid(), *(child.pid for child in children)]))
    READY.touch()


def sleeper(**options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "1000"], **options)


def in_order() -> None:
    """Closes everything when it is told to stop."""
    stopped: list[bool] = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    begin(sleeper(start_new_session=True))
    while not stopped:
        time.sleep(0.05)
    (READY.parent / "closed").touch()
    raise KeyboardInterrupt


def stubborn() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    begin(sleeper())
    while True:
        time.sleep(1)


def closes_nothing() -> None:
    begin()
    time.sleep(1000)


def prints() -> None:
    begin(subprocess.Popen(["true"]))
    print("noise")
    os.write(2, b"noise of a library")


def wrong_setting() -> None:
    begin()
    raise ConfigError("trainer.epochs: must be 1")


def error() -> None:
    begin()
    raise ValueError("no such thing")


def error_of_another_process() -> None:
    begin()
    raise RuntimeError("a traceback of another process\nKeyError: 3")


def exits() -> None:
    begin()
    raise SystemExit(7)


def killed() -> None:
    begin(sleeper())
    os.kill(os.getpid(), signal.SIGKILL)


def reports_late() -> None:
    begin()
    Reports.of_this_process().begin("training")
    time.sleep(1)


def fails_late() -> None:
    begin()
    reports = Reports.of_this_process()
    reports.send(under_way=True, dump="/runs/dumps", run_id="r", log="/logs/train.log", checkpoint=10)
    reports.send(line="step 12/60 | reward 0.50", step=12, total=60)
    raise ConfigError("the scorer processes are gone")


def ends_with_groups_missing() -> None:
    Reports.of_this_process().send(under_way=True, step=3, total=3)
    begin()
    raise MissingGroupsError("12 groups of this run missing from the dump in d: the disk failed")


if __name__ == "__main__":
    rg_env.base.processes._LONGEST_TEMP = 1000  # the scratch folder is below the test's, whose path is too long for Ray
    screen = Screen("train")
    code = supervise(globals()[sys.argv[1]], screen)
    screen.end(code, ["a.yaml"])
    sys.exit(code)
