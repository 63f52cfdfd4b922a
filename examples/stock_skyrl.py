"""SkyRL's own experiment on rows that `rg-env dataset` has exported: python examples/stock_skyrl.py KEY=VALUE …"""

import sys

import ray
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.entrypoints.main_base import BasePPOExp
from skyrl.train.utils import initialize_ray, validate_cfg

import rg_env


@ray.remote(num_cpus=1)
def train(cfg: SkyRLTrainConfig, experiment: type[BasePPOExp] = BasePPOExp) -> None:
    rg_env.register()  # in the process that builds the environments
    experiment(cfg).run()


if __name__ == "__main__":
    config = SkyRLTrainConfig.from_cli_overrides(sys.argv[1:])
    validate_cfg(config)
    initialize_ray(config)
    ray.get(train.remote(config))
