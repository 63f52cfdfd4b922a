"""`rg-env train` whose first step blocks the main thread of the training task in compiled code.

python tests/e2e/blocked_run.py CONFIG.yaml [overrides]
"""

import ctypes
import sys

import ray


@ray.remote(num_cpus=1)
def _train(cfg, reports):
    from rg_env.skyrl.experiment import run_training
    from rg_env.skyrl.generator import RGDumpGenerator

    generate = RGDumpGenerator.generate

    async def generate_then_block(self, *args, **kwargs):
        output = await generate(self, *args, **kwargs)
        ctypes.CDLL(None).sleep(600)  # Python sees no interruption before it returns
        return output

    RGDumpGenerator.generate = generate_then_block
    run_training(cfg, reports)


if __name__ == "__main__":
    from rg_env import train
    from rg_env.skyrl import launch

    launch.training_task = _train
    launch._STOP_SECONDS = 3.0
    sys.exit(train.run_training(sys.argv[1:]))
