"""The other side of the comparison in `gpu_check.py`: our trainer and batches with SkyRL's own generator.

The environment scores the responses as usual, as it does in SkyRL. There are no rules of groups, no metrics of ours and
no record of a group.
"""

from typing import Any

from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator

from rg_env.skyrl.experiment import RGExperiment


class SkyRLAlone(RGExperiment):
    def get_generator(self, *args: Any) -> Any:
        generator: Any = super().get_generator(*args)

        async def generate(batch: Any, disable_tqdm: bool = False) -> Any:
            output = await SkyRLGymGenerator.generate(generator, batch, disable_tqdm)
            names = batch["trajectory_ids"]
            lists = {"group_ids": [name.instance_id for name in names], "masked": [False] * len(names)}
            return output | {"trajectory_ids": names} | lists  # which our trainer needs

        generator.generate = generate
        return generator
