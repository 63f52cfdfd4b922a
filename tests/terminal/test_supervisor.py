"""Real processes: a command and what it starts, stopped in every way. No Ray, so that they take a moment only."""

import json
import os
import signal
import subprocess
import time

import psutil
import pytest

from tests.running import ROOT, program


@pytest.fixture(autouse=True)
def hangups_are_not_ignored():
    """As they are in the commands if the tests themselves run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


class Command:
    """A supervised command in its own process."""

    def __init__(self, folder, work, prefix=()):
        self.folder = folder
        self.temp = folder / "t"
        self.temp.mkdir()
        self.process = subprocess.Popen(
            [*prefix, *program("supervised", work, folder / "ready")],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(self.temp)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until_ready(self):
        while not (self.folder / "ready").exists():
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.02)
        return self

    def send(self, *signals):
        for signum in signals:
            self.process.send_signal(signum)
            time.sleep(0.3)  # so that none is merged with the next
        return self

    def end(self):
        out, err = self.process.communicate(timeout=100)
        return self.process.returncode, out, err

    def alive(self):
        pids = json.loads((self.folder / "pids").read_text())
        return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]


def start(folder, work, prefix=()):
    return Command(folder, work, prefix)


def nothing_is_left(command):
    assert list(command.temp.iterdir()) == []
    assert command.alive() == []


@pytest.mark.parametrize(
    ("signals", "exit_code"),
    [([signal.SIGINT], 130), ([signal.SIGTERM], 143), ([signal.SIGHUP], 129), ([signal.SIGINT] * 2, 130)],
)
def test_a_signal_lets_the_run_close_its_dump_and_ends_everything(tmp_path, signals, exit_code):
    command = start(tmp_path, "in_order").until_ready().send(*signals)
    returned, out, _ = command.end()
    assert returned == exit_code
    assert (tmp_path / "closed").exists()
    assert f"stopped by {signals[0].name}" in out.splitlines()[-1]
    nothing_is_left(command)


def test_the_exit_code_is_that_of_the_run_also_where_a_launcher_ignores_the_end_of_children(tmp_path):
    command = start(tmp_path, "prints", prefix=["sh", "-c", "trap '' CHLD; exec \"$@\"", "-"])
    returned, _, err = command.end()
    assert (returned, err) == (0, "")


def test_a_run_that_does_not_stop_is_killed_after_more_signals(tmp_path):
    command = start(tmp_path, "stubborn").until_ready().send(signal.SIGINT, signal.SIGINT, signal.SIGINT)
    assert command.end()[0] == 130
    nothing_is_left(command)


def test_a_run_that_has_nothing_to_close_ends_at_once(tmp_path):
    command = start(tmp_path, "closes_nothing").until_ready().send(signal.SIGTERM)
    returned, out, _ = command.end()
    assert returned == 143
    assert out.splitlines()[-1] == "stopped by SIGTERM while importing; no step was finished"
    nothing_is_left(command)


def test_nohup_survives_a_hangup(tmp_path):
    command = start(tmp_path, "in_order", prefix=["nohup"]).until_ready().send(signal.SIGHUP)
    assert command.process.poll() is None
    command.send(signal.SIGTERM)
    assert command.end()[0] == 143
    nothing_is_left(command)


def test_a_killed_supervisor_stops_the_run_in_order(tmp_path):
    command = start(tmp_path, "in_order").until_ready().send(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while list(command.temp.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (tmp_path / "closed").exists()
    assert list(command.temp.iterdir()) == []
    for pid in command.alive():  # nobody is left who could end what the run started
        psutil.Process(pid).kill()


@pytest.mark.parametrize(
    ("work", "exit_code", "said"),
    [
        ("prints", 0, ""),
        ("wrong_setting", 2, "trainer.epochs: must be 1"),
        ("error", 1, "ValueError: no such thing"),
        ("error_of_another_process", 1, "KeyError: 3"),
        ("exits", 1, "the run's process exited with exit code 1"),
        ("killed", 1, "the run's process exited with SIGKILL"),
    ],
)
def test_an_error_is_one_line_and_what_a_run_prints_and_starts_is_gone(tmp_path, work, exit_code, said):
    command = start(tmp_path, work)
    returned, out, err = command.end()
    assert (returned, err) == (exit_code, f"rg-env: {said}\n" if said else "")
    assert "Traceback" not in out
    assert "noise" not in out
    nothing_is_left(command)


def test_a_reader_that_has_gone_away_does_not_stop_the_run(tmp_path):
    command = start(tmp_path, "reports_late")
    command.process.stdout.close()
    command.process.stdout = None
    returned, _, err = command.end()
    assert (returned, err) == (0, "")
    nothing_is_left(command)


def test_a_failure_late_in_a_run_is_no_wrong_setting(tmp_path):
    """It shows the dump, the log and the command that continues."""
    returned, out, err = start(tmp_path, "fails_late").end()
    assert (returned, err) == (1, "rg-env: the scorer processes are gone\n")
    lines = out.splitlines()
    assert {"step 12/60 | reward 0.50", "dump: /runs/dumps"} <= {*lines}
    assert lines[-2:] == [
        "log: /logs/train.log",
        "failed after step 12 of 60; to continue from step 10: rg-env train a.yaml trainer.resume_mode=latest",
    ]


def test_a_run_that_ends_with_groups_missing_says_so_in_the_last_line_with_exit_code_3(tmp_path):
    command = start(tmp_path, "ends_with_groups_missing")
    code, out, err = command.end()
    assert (code, err) == (3, "")
    first, *_, last = out.splitlines()
    assert first.startswith("trained to step 3 in ")
    assert last == "rg-env: 12 groups of this run missing from the dump in d: the disk failed"
    nothing_is_left(command)
