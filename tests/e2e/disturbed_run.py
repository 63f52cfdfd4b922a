"""`rg-env train` that is disturbed after the first batch: python tests/e2e/disturbed_run.py HOW CONFIG.yaml [overrides]

HOW is `blocked`: the main thread of the training task hangs in compiled code; or `without_scorers`: no scorer process
can be started any more.
"""

import ctypes
import os
import sys
import tempfile
from pathlib import Path

import ray

HOW, *ARGS = sys.argv[1:]


def blocked():
    ctypes.CDLL(None).sleep(600)  # Python sees no interruption before it returns


def without_scorers():
    from rg_env.runner import caller_worker
    from rg_env.scoring import scorer

    shadow = Path(tempfile.mkdtemp(), "reasoning_gym.py")
    shadow.write_text("raise ImportError('no such wheel')")
    environment = caller_worker.environment()
    paths = os.pathsep.join([str(shadow.parent), environment["PYTHONPATH"]])
    caller_worker.environment = lambda: {**environment, "PYTHONPATH": paths}
    for shared in scorer._shared.values():
        shared.close()


def training_task(disturb):
    @ray.remote(num_cpus=1)
    def train(cfg, reports):
        from rg_env.skyrl.experiment import run_training
        from rg_env.skyrl.generator import RGDumpGenerator

        generate = RGDumpGenerator.generate

        async def generate_then_disturb(self, *args, **kwargs):
            output = await generate(self, *args, **kwargs)
            disturb()
            return output

        RGDumpGenerator.generate = generate_then_disturb
        run_training(cfg, reports)

    return train


if __name__ == "__main__":
    from rg_env import train
    from rg_env.skyrl import launch

    launch.training_task = training_task({"blocked": blocked, "without_scorers": without_scorers}[HOW])
    launch._STOP_SECONDS = 3.0
    train.main(ARGS)
