"""Two real trainings at once in an empty folder, one of which is killed: each in its own place, under its own name."""

import json
import signal
import subprocess
import sys
import time

import pytest

from rg_env.dump.run_files import dump_folders
from tests.running import ROOT, rg_env

pytestmark = [pytest.mark.weekly, pytest.mark.slow, pytest.mark.timeout(1500)]
SHORT = (
    "trainer.train_batch_size=8",
    "trainer.policy_mini_batch_size=8",
    "trainer.micro_train_batch_size_per_gpu=64",
    "trainer.micro_forward_batch_size_per_gpu=64",
    "trainer.eval_interval=-1",
    "trainer.eval_before_train=false",
    "trainer.hf_save_interval=1",
)


def start(folder, steps, *more):
    command = [sys.executable, "-m", "rg_env", "train", str(ROOT / "configs" / "quickstart.yaml"), *SHORT, *more]
    return subprocess.Popen([*command, f"trainer.max_training_steps={steps}"], cwd=folder, stdout=subprocess.DEVNULL)


def test_two_trainings_at_once_one_of_which_is_killed(tmp_path):
    finished = start(tmp_path, 1)
    killed = start(tmp_path, 500, "trainer.run_name=mine")
    runs = tmp_path / "runs"
    while not list(runs.glob("mine-2*/exports/global_step_1")):
        assert killed.poll() is None
        time.sleep(0.5)
    killed.send_signal(signal.SIGKILL)  # of the process that the user sees; the others end with it
    assert finished.wait() == 0
    of_killed, of_finished = dump_folders(runs)
    deadline = time.monotonic() + 120
    while list(of_killed.glob("*_lock_*")) and time.monotonic() < deadline:
        time.sleep(0.5)
    listed = {run["name"]: run for run in json.loads(rg_env("runs", "--json", cwd=tmp_path).stdout)}
    assert {name: run["kind"] for name, run in listed.items()} == {"quickstart": "train", "mine": "train"}
    assert {name: run["end"] for name, run in listed.items()} == {"quickstart": "finished", "mine": "killed"}
    assert {name: run["total_steps"] for name, run in listed.items()} == {"quickstart": 1, "mine": 500}
    for name, dump in {"mine": of_killed, "quickstart": of_finished}.items():
        folder = dump.parent
        assert (runs / name).resolve() == folder
        assert sorted(path.name for path in folder.iterdir()) == ["checkpoints", "dumps", "exports", "logs"]
        assert (folder / "exports" / "global_step_1").is_dir()
