"""`rg-env train` where no scorer process can be started after the first batch.

python tests/e2e/broken_pool_run.py CONFIG.yaml [overrides]
"""

import os
import sys
import tempfile
from pathlib import Path

import ray


@ray.remote(num_cpus=1)
def _train(cfg, reports):
    from rg_env.scoring import fork_server, scorer
    from rg_env.skyrl.experiment import run_training
    from rg_env.skyrl.generator import RGDumpGenerator

    environment = fork_server.environment()
    shadow = Path(tempfile.mkdtemp(), "reasoning_gym.py")
    shadow.write_text("raise ImportError('no such wheel')")
    generate = RGDumpGenerator.generate

    async def generate_then_break(self, *args, **kwargs):
        output = await generate(self, *args, **kwargs)
        paths = os.pathsep.join([str(shadow.parent), environment["PYTHONPATH"]])
        fork_server.environment = lambda: {**environment, "PYTHONPATH": paths}
        for shared in scorer._shared.values():
            shared.close()
        return output

    RGDumpGenerator.generate = generate_then_break
    run_training(cfg, reports)


if __name__ == "__main__":
    from rg_env import train
    from rg_env.skyrl import launch

    launch.training_task = _train
    sys.exit(train.run_training(sys.argv[1:]))
