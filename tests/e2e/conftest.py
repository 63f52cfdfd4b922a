import contextlib
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
RG = "environment.skyrl_gym.rg_dump"


def run_command(*args, cwd=ROOT, timeout=800, check=True):
    """Run a command as a user would. If it fails, the assertion shows its output."""
    done = subprocess.run(
        [str(arg) for arg in args], cwd=cwd, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL
    )
    assert not check or done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
    return done


def rg_env(*args, **kwargs):
    """`rg-env …` of this environment."""
    return run_command(sys.executable, "-c", "from rg_env.cli import main; main()", *args, **kwargs)


def kill_with_everything_it_started(process):
    """SIGKILL for a run. Its supervisor is stopped first, so that it neither cleans up nor lets the run do so."""
    supervisor = psutil.Process(process.pid)
    supervisor.suspend()
    while family := [one for one in supervisor.children(recursive=True) if is_alive(one)]:
        for one in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        time.sleep(0.05)
    supervisor.kill()


def is_alive(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def short_run(tmp_path):
    """Overrides that turn the quickstart into a run of two steps in its own folder."""
    return [
        ROOT / "configs" / "quickstart.yaml",
        "trainer.max_training_steps=2",
        "trainer.train_batch_size=8",
        "trainer.policy_mini_batch_size=8",
        "trainer.micro_train_batch_size_per_gpu=64",
        "trainer.micro_forward_batch_size_per_gpu=64",
        "trainer.eval_interval=-1",
        "trainer.eval_before_train=false",
        f"trainer.ckpt_path={tmp_path}/checkpoints",
        f"trainer.export_path={tmp_path}/exports",
        f"trainer.log_path={tmp_path}/logs",
        f"{RG}.dump_dir={tmp_path}/dumps",
    ]
