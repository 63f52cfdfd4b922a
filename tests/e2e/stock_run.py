"""examples/stock_skyrl.py on the CPU: `python -m tests.e2e.stock_run FOLDER`, where FOLDER has train.parquet."""

import json
import sys
from pathlib import Path
from unittest import mock

import ray
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.entrypoints import main_base
from skyrl.train.entrypoints.main_base import BasePPOExp
from skyrl.train.utils import validate_cfg

from examples.stock_skyrl import train
from rg_env.skyrl.cpu import CPU_OVERRIDES, nano_path
from rg_env.skyrl.cpu.cpu_experiment import CPUMixin, cpu_ray


class CPUExperiment(CPUMixin, BasePPOExp):
    """SkyRL's own experiment, with workers and a sampler for the CPU."""

    def get_train_dataset(self):
        """SkyRL's dataset, read in this process: SkyRL starts eight for sixteen rows, and each imports torch."""
        of_skyrl = main_base.PromptDataset
        with mock.patch.object(main_base, "PromptDataset", lambda **named: of_skyrl(**named | {"num_workers": 1})):
            return super().get_train_dataset()


def settings(folder):
    return {
        **CPU_OVERRIDES,
        "trainer.policy.model.path": str(nano_path()),
        "trainer.algorithm.use_kl_loss": False,
        "trainer.train_batch_size": 4,
        "trainer.policy_mini_batch_size": 4,
        "trainer.critic_mini_batch_size": 4,
        "trainer.micro_train_batch_size_per_gpu": 16,
        "trainer.micro_forward_batch_size_per_gpu": 16,
        "trainer.eval_interval": -1,
        "trainer.eval_before_train": False,
        "trainer.max_training_steps": 2,
        "trainer.ckpt_interval": -1,
        "trainer.resume_mode": "none",
        **{f"trainer.{name}_path": str(folder / name) for name in ("ckpt", "export", "log")},
        "trainer.dump_data_batch": True,
        "generator.n_samples_per_prompt": 4,
        "generator.sampling_params.max_generate_length": 48,
        "data.train_data": [str(folder / "train.parquet")],
        "data.val_data": [],
        "environment.env_class": "rg_dump",
    }


def main():
    folder = Path(sys.argv[1])
    cfg = SkyRLTrainConfig.from_cli_overrides([f"{key}={json.dumps(value)}" for key, value in settings(folder).items()])
    validate_cfg(cfg)
    with cpu_ray(cfg):
        ray.get(train.remote(cfg, CPUExperiment))


if __name__ == "__main__":
    main()
