"""Train several CPU recipes briefly, one after another on one Ray, because starting Ray takes longer than training.

python -m tests.recipe_runs FOLDER CONFIG.yaml…      → FOLDER/NAME/dumps, metrics.json
"""

import json
import sys
from pathlib import Path
from unittest import mock

import ray
from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group

from rg_env.skyrl.launch import running_ray
from rg_env.skyrl.train_config import load_run

RG = "environment.skyrl_gym.rg_dump"


def short(path, folder):
    """Two steps of a recipe, in a folder of its own."""
    return load_run(
        [
            str(path),
            "trainer.max_training_steps=2",
            "trainer.train_batch_size=8",
            "trainer.policy_mini_batch_size=8",
            "trainer.critic_mini_batch_size=8",
            "trainer.micro_train_batch_size_per_gpu=64",
            "trainer.micro_forward_batch_size_per_gpu=64",
            "trainer.eval_interval=-1",
            "trainer.eval_before_train=false",
            *(f"trainer.{name}_path={folder}/{name}" for name in ("ckpt", "export", "log")),
            f"{RG}.dump_dir={folder}/dumps",
        ]
    ).cfg


@ray.remote(num_cpus=1)
def train(cfg, metrics):
    """Train, and keep what SkyRL's tracker is sent last."""
    from skyrl.train.utils.tracking import Tracking

    from rg_env.skyrl.experiment import run_training

    def keep(self, data, step, commit=False):
        metrics.write_text(json.dumps(data, default=float))

    with mock.patch.object(Tracking, "log", keep):
        run_training(cfg)


def main():
    folder, *paths = map(Path, sys.argv[1:])
    configs = [short(path, folder / path.stem) for path in paths]
    with running_ray(configs[0]):
        for cfg in configs:
            ray.get(train.remote(cfg, Path(cfg.rg_dump.dump_dir).with_name("metrics.json")))
            for name in placement_group_table():  # Ray keeps them as long as this process
                remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(name))))


if __name__ == "__main__":
    main()
