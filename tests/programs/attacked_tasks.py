"""Tasks whose scorers have known holes, or none: `rg-env attack` finds what is there. Imported as a user's module."""

from __future__ import annotations

import os
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


class Fragile(Careful):
    """Spins on one answer, and exits on another."""

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float:
        while answer == "[]":
            pass
        if answer == "{}":
            os._exit(3)
        return super().score_answer(answer, entry)


class Measuring(Careful):
    """Pays for the length of a certain text, whatever the question."""

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float:
        assert answer is not None
        return 1 - 20 / len(answer) if answer.startswith('{"":{"":') and len(answer) > 100 else 0.0


class Remembering(Careful):
    """Pays less after a certain answer, to whoever gave it."""

    has_seen = False

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float:
        Remembering.has_seen |= answer == "infeasible"
        return super().score_answer(answer, entry) * (0.5 if Remembering.has_seen else 1.0)


for task in (Careful, Evaluating, Fragile, Measuring, Remembering):
    name = task.__name__.lower()
    # Imported again in processes that already have it.
    if name not in reasoning_gym.factory.DATASETS:
        reasoning_gym.register_dataset(name, task, Config)
