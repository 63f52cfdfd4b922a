"""TRL's trainer with `nano`, in the test or (as a script) in each process of a distributed run.

Arguments of the script: folders for the trainer's output and for the dump.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from rg_env.configuration.config import RGDumpConfig
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.skyrl.cpu import nano_path
from rg_env.trainers.trl import GRPOReward, to_dataset

TASKS = {"spell_backward": {"weight": 1, "config": {"min_word_len": 3, "max_word_len": 5}}}


def train(output: Path | str, dump: Path | str, **changes: Any) -> GRPOTrainer:
    """Train, write a dump, and return the trainer. `changes`: of TRL's settings."""
    common = {"num_generations": 4, "use_cpu": True, "bf16": False, "report_to": "none", "save_strategy": "no"}
    args = GRPOConfig(output_dir=str(output), **{**common, **changes})
    with GRPOReward(args, RGDumpConfig(dump_eval_rollouts=True), dump=dump, model="nano") as reward:
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(nano_path()),
            reward_funcs=reward,
            args=args,
            train_dataset=to_dataset(ReasoningGymDataset(TASKS, size=16)),
            eval_dataset=to_dataset(ReasoningGymDataset(TASKS, size=2, split="eval")),
            processing_class=AutoTokenizer.from_pretrained(nano_path(), padding_side="left"),
        )
        trainer.train()
    return trainer


if __name__ == "__main__":
    train(sys.argv[1], sys.argv[2], max_steps=1, per_device_train_batch_size=4, max_completion_length=16)
