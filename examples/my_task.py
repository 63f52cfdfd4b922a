"""Your own task. Scorer processes import this module too, so it should import nothing heavy; see docs/your-code.md."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from reasoning_gym.factory import ProceduralDataset, register_dataset


@dataclass
class DoubleConfig:
    highest: int = 9
    size: int = 500
    seed: int | None = None

    def validate(self) -> None:
        assert self.highest >= 1, "highest must be at least 1"


class Double(ProceduralDataset):
    """Items must depend on the seed and the index alone."""

    def __init__(self, config: DoubleConfig) -> None:
        super().__init__(config=config, seed=config.seed, size=config.size)

    def __getitem__(self, index: int) -> dict[str, Any]:
        number = random.Random(self.seed + index).randint(1, self.config.highest)
        metadata = {"source_dataset": "double", "source_index": index, "number": number}
        return {"question": f"What is {number} + {number}?", "answer": str(2 * number), "metadata": metadata}

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float:
        return float(answer == entry["answer"])


register_dataset("double", Double, DoubleConfig)
