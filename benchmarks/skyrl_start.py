"""SkyRL without rg_env's dataset, environment, generator and trainer: one training run of nano on rg_env's CPU workers,
started as by SkyRL's own entrypoint.

    python -m benchmarks.skyrl_start FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import ray
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.entrypoints.main_base import BasePPOExp
from skyrl.train.utils import validate_cfg
from skyrl_gym.envs import register
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from rg_env.cpu import CPU_OVERRIDES, CPUMixin, cpu_ray, nano_path

BATCH = 16


class NoEnv(BaseTextEnv):
    def __init__(self, env_config: Any = None, extras: Any = None) -> None:
        super().__init__()

    def step(self, action: str) -> BaseTextEnvStepOutput:
        return BaseTextEnvStepOutput(observations=[], reward=float(len(action) % 2), done=True, metadata={})


class Prompts:
    def __len__(self) -> int:
        return BATCH

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return [{"role": "user", "content": "Spell this word backward: word"}], "none", {}, str(index)

    def collate_fn(self, items: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
        return [dict(zip(("prompt", "env_class", "env_extras", "uid"), item, strict=True)) for item in items]


class Experiment(CPUMixin, BasePPOExp):
    def get_train_dataset(self) -> Prompts:
        return Prompts()

    def get_eval_dataset(self) -> None:
        return None


@ray.remote(num_cpus=1, max_retries=0)
def train(cfg: SkyRLTrainConfig) -> None:
    register(id="none", entry_point="benchmarks.skyrl_start:NoEnv")
    Experiment(cfg).run()


def settings(folder: Path) -> dict[str, Any]:
    return {
        **CPU_OVERRIDES,
        "trainer.policy.model.path": str(nano_path()),
        "trainer.algorithm.use_kl_loss": False,
        "trainer.train_batch_size": BATCH,
        "trainer.policy_mini_batch_size": BATCH,
        "trainer.micro_train_batch_size_per_gpu": 128,
        "trainer.micro_forward_batch_size_per_gpu": 128,
        "trainer.eval_interval": 0,
        "trainer.max_prompt_length": 128,
        "trainer.max_training_steps": 1,
        "trainer.ckpt_interval": -1,
        "trainer.hf_save_interval": -1,
        "trainer.resume_mode": "none",
        "trainer.logger": "console",
        "trainer.ckpt_path": str(folder / "checkpoints"),
        "trainer.export_path": str(folder / "exports"),
        "trainer.log_path": str(folder / "logs"),
        "generator.n_samples_per_prompt": 8,
        "generator.sampling_params.max_generate_length": 64,
        "environment.env_class": "none",
    }


def main() -> None:
    values = settings(Path(sys.argv[1]))
    cfg = SkyRLTrainConfig.from_cli_overrides([f"{key}={json.dumps(value)}" for key, value in values.items()])
    validate_cfg(cfg)
    with cpu_ray(cfg):
        ray.get(train.remote(cfg))


if __name__ == "__main__":
    main()
