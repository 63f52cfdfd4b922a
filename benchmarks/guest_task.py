"""A task such as a user brings: its scorer may evaluate answers, so each gets a process of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reasoning_gym.factory import ProceduralDataset, create_dataset, register_dataset

NAME = "guest"
ENTRY: dict[str, Any] = {"question": "2 + 2 =", "answer": "4", "metadata": {"source_dataset": NAME}}


@dataclass
class GuestConfig:
    size: int = 1
    seed: int = 0

    def validate(self) -> None:
        pass


class GuestDataset(ProceduralDataset):
    def __init__(self, config: GuestConfig) -> None:
        super().__init__(config=config, seed=config.seed, size=config.size)

    def __getitem__(self, idx: int) -> dict[str, Any]:
        return ENTRY


register_dataset(NAME, GuestDataset, GuestConfig)


def score(answer: str) -> float:
    """What a worker does for an answer: bare and in tags."""
    dataset = create_dataset(NAME)
    return max(float(dataset.score_answer(text, ENTRY)) for text in (answer, f"<answer>{answer}</answer>"))
