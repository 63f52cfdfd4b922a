"""Telling a busy process from one that gets no core, with real processes on one core."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from rg_env.scoring.workers.effort import Effort

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
SPIN = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); os.nice(int(sys.argv[2]))\nwhile True: pass"
SECONDS = 0.5


@pytest.fixture
def spinning() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Three that spin on one core, and one that would like to."""
    core = min(os.sched_getaffinity(0))
    started = [subprocess.Popen([sys.executable, "-c", SPIN, str(core), nice]) for nice in ("0", "0", "0", "19")]
    time.sleep(1.0)
    yield started
    for process in started:
        process.kill()
        process.wait()


def test_one_that_wants_a_core_and_gets_none_is_starved(spinning: list[subprocess.Popen[bytes]]) -> None:
    before = Effort.of(spinning[-1].pid)
    time.sleep(SECONDS)
    assert before.runnable
    assert before.starved_since(SECONDS)


def test_one_that_had_a_core_is_not(spinning: list[subprocess.Popen[bytes]]) -> None:
    now = Effort.of(spinning[0].pid)
    assert now.cpu_seconds > 0
    assert not Effort(now.pid, True, now.cpu_seconds - SECONDS).starved_since(SECONDS)


def test_one_that_sleeps_or_is_gone_is_not() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        time.sleep(1.0)
        before = Effort.of(process.pid)
        assert not before.starved_since(SECONDS)
        process.kill()
    assert not before.starved_since(SECONDS)
    assert not Effort.of(process.pid).starved_since(SECONDS)
