"""Tasks whose scorers have known holes, or none: `rg-env attack` finds what is there. Imported as a user's module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import reasoning_gym
from reasoning_gym.dataset import ProceduralDataset


@dataclass
class Config:
    """The options that every task of Reasoning Gym has."""

    seed: int = 0
    size: int = 1


class Careful(ProceduralDataset):
    """Compares the answer as text: nothing to find."""

    rg_env_fresh = False  # so that there is a process to poison

    def __init__(self, config: Config) -> None:
        super().__init__(config=config, seed=config.seed, size=config.size)

    def __getitem__(self, index: int) -> dict[str, Any]:
        number = self.seed % 90_000
        return {"question": f"What is {number} * 7 + 3?", "answer": str(number * 7 + 3), "metadata": {}}

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float:
        return float(answer == entry["answer"])


class Evaluating(Careful):
    """Evaluates the answer, in a process that other answers share."""

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float:
        return float(str(eval(answer or "")) == entry["answer"])  # the hole


class Measuring(Careful):
    """Pays for the length of a certain text, whatever the question."""

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float:
        assert answer is not None
        return 1 - 20 / len(answer) if answer.startswith('{"":{"":') and len(answer) > 100 else 0.0


for name, task in {"careful": Careful, "evaluating": Evaluating, "measuring": Measuring}.items():
    # Imported again in processes that already have it.
    if name not in reasoning_gym.factory.DATASETS:
        reasoning_gym.register_dataset(name, task, Config)
