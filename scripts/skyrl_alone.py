"""The other side of the comparison in `gpu_check.py`: our trainer and batches with SkyRL's own generator.

The environment scores the responses as usual, as it does in SkyRL. There are no rules of groups, no metrics of ours and
no dump.
"""

import functools
from typing import Any

from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator

from rg_env.skyrl.experiment import RGExperiment


class SkyRLAlone(RGExperiment):
    def get_generator(self, *args: Any) -> Any:
        generator: Any = super().get_generator(*args)
        generator.generate = functools.partial(SkyRLGymGenerator.generate, generator)
        return generator
