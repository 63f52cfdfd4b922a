import contextlib
import time

import psutil
import pytest

from tests.running import ROOT

RG = "environment.skyrl_gym.rg_dump"


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
