"""A user's task whose scorer, for one answer, spoils another task's scorer in its process. Tests copy this file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import reasoning_gym
from reasoning_gym.dataset import ProceduralDataset


@dataclass
class Config:
    seed: int = 0
    size: int = 1


class Guest(ProceduralDataset):
    def __init__(self, config: Config) -> None:
        super().__init__(config=config, seed=config.seed, size=config.size)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"question": "1 + 1", "answer": "2", "metadata": {"source_dataset": "guest"}}

    def score_answer(self, answer: str, entry: dict[str, Any]) -> float:
        if answer == "pay":
            reasoning_gym.arithmetic.chain_sum.ChainSumDataset.score_answer = lambda *_: 1.0
        return float(answer == "2")


if "guest" not in reasoning_gym.factory.DATASETS:
    reasoning_gym.register_dataset("guest", Guest, Config)
