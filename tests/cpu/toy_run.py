"""A few real training steps on the toy policy: `python -m tests.cpu.toy_run FOLDER key=value…`.

Runs in its own process. Writes what the tests compare to FOLDER/report.pt.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.entrypoints.main_base import BasePPOExp
from skyrl.train.trainer import RayPPOTrainer
from skyrl.train.utils import validate_cfg
from skyrl_gym.envs import register
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from rg_env.skyrl.checks import check_cpu, find_mistakes
from rg_env.skyrl.cpu import CPU_OVERRIDES
from rg_env.skyrl.cpu.cpu_experiment import CPUMixin, cpu_ray
from tests.cpu.toy import build_model


class LetterEnv(BaseTextEnv):
    """Rewards the share of `a` in the response."""

    def __init__(self, env_config: Any = None, extras: Any = None) -> None:
        super().__init__()

    def step(self, action: str) -> BaseTextEnvStepOutput:
        reward = action.count("a") / max(1, len(action))
        return BaseTextEnvStepOutput(observations=[], reward=reward, done=True, metadata={})


class Prompts:
    def __init__(self, count: int) -> None:
        self._rows = [("abcdefghij"[i % 10] * (1 + i % 7), str(i)) for i in range(count)]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        text, uid = self._rows[index]
        return [{"role": "user", "content": text}], "letter", {}, uid

    def collate_fn(self, items: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
        return [dict(zip(("prompt", "env_class", "env_extras", "uid"), item, strict=True)) for item in items]


class RecordingTrainer(RayPPOTrainer):
    """Keeps each step's batch, as it goes to the workers, its metrics, and the weights on both sides after it."""

    def train_critic_and_policy(self, data: Any) -> Any:
        columns = ("sequences", "attention_mask", "response_mask", "loss_mask", "advantages")
        batch = {name: data[name].clone() for name in (*columns, "action_log_probs", "rollout_logprobs")}
        status = super().train_critic_and_policy(data)
        self.report.append({"batch": batch, "status": status})
        return status

    async def on_synced(self) -> None:
        folder = Path(self.cfg.trainer.export_path) / f"policy_{len(self.report)}"
        self.dispatch.save_hf_model("policy", str(folder), self.tokenizer)
        state = await self.inference_engine_client._actor.__ray_call__.remote(
            lambda actor: actor._sampler._model.state_dict()
        )
        self.synced.append(
            {"policy": str(folder), "sampler": state, "version": self.inference_engine_client.weight_version}
        )


class RecordingExperiment(BasePPOExp):
    def get_train_dataset(self) -> Prompts:
        return Prompts(64)

    def get_eval_dataset(self) -> Prompts | None:
        return Prompts(6) if self.cfg.trainer.eval_interval > 0 else None

    def get_trainer(self, **kwargs: Any) -> RecordingTrainer:
        trainer = RecordingTrainer(**kwargs)
        trainer.report, trainer.synced = [], []
        return trainer

    def _setup_trainer(self) -> RecordingTrainer:
        trainer = super()._setup_trainer()
        save = trainer.dispatch.save_weights_for_sampler

        async def save_and_compare(*args: Any, **kwargs: Any) -> None:
            await save(*args, **kwargs)
            await trainer.on_synced()

        trainer.dispatch.save_weights_for_sampler = save_and_compare
        return trainer


class ToyExperiment(CPUMixin, RecordingExperiment):
    pass


def settings(folder: Path) -> dict[str, Any]:
    return {
        **CPU_OVERRIDES,
        "trainer.policy.model.path": str(folder / "model"),
        "trainer.policy.optimizer_config.lr": 3e-3,
        "trainer.algorithm.advantage_estimator": "grpo",
        "trainer.algorithm.use_kl_loss": False,
        "trainer.train_batch_size": 4,
        "trainer.policy_mini_batch_size": 4,
        "trainer.critic_mini_batch_size": 4,
        "trainer.micro_train_batch_size_per_gpu": 8,
        "trainer.micro_forward_batch_size_per_gpu": 8,
        "trainer.eval_batch_size": 8,
        "trainer.eval_interval": 2,
        "trainer.eval_before_train": False,
        "trainer.max_prompt_length": 64,
        "trainer.max_training_steps": 2,
        "trainer.ckpt_interval": -1,
        "trainer.resume_mode": "none",
        "trainer.ckpt_path": str(folder / "ckpt"),
        "trainer.export_path": str(folder / "export"),
        "trainer.log_path": str(folder / "log"),
        "trainer.print_example_interval": -1,
        "generator.n_samples_per_prompt": 4,
        "generator.sampling_params.max_generate_length": 12,
        "generator.sampling_params.temperature": 0.8,
        "environment.env_class": "letter",
        "environment.skyrl_gym.max_env_workers": 0,
    }


def main() -> None:
    folder = Path(sys.argv[1])
    user = {key: json.loads(value) for key, value in (arg.split("=", 1) for arg in sys.argv[2:])}
    build_model(folder / "model", tied=user.pop("tied", False))
    values = {**settings(folder), **user}
    cfg = SkyRLTrainConfig.from_cli_overrides([f"{key}={json.dumps(value)}" for key, value in values.items()])
    assert not find_mistakes(cfg, [check_cpu])
    validate_cfg(cfg)
    register(id="letter", entry_point="tests.cpu.toy_run:LetterEnv")
    with cpu_ray(cfg):
        experiment = ToyExperiment(cfg)
        experiment.run()
    torch.save({"steps": experiment.trainer.report, "synced": experiment.trainer.synced}, folder / "report.pt")


if __name__ == "__main__":
    main()
