"""Stopping a real run."""

import signal
import subprocess
import sys
import time

import psutil
import pytest

from rg_env.dump import open_run
from rg_env.dump.files import lock_name
from tests.running import ROOT

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(1000)]


def test_sigterm_closes_the_dump_and_ends_every_process_although_a_step_blocks(tmp_path, short_run):
    dumps = tmp_path / "dumps"
    script = ROOT / "tests" / "e2e" / "disturbed_run.py"
    run = subprocess.Popen(
        [sys.executable, script, "blocked", *map(str, short_run)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not any(path.stat().st_size for path in dumps.glob("*_ledger_*.part")):
        assert run.poll() is None, run.communicate()
        time.sleep(0.2)
    family = psutil.Process(run.pid).children(recursive=True)
    assert len(family) > 6
    run.send_signal(signal.SIGTERM)
    out, err = run.communicate(timeout=800)
    assert run.returncode == 143, err[-4000:]
    assert "stopped by SIGTERM" in out.splitlines()[-1]
    assert not [process for process in family if process.is_running()]
    assert not list(dumps.glob("*.part"))
    assert not list(dumps.glob(lock_name("*")))
    assert len(list(open_run(dumps).ledger())) == 8
