"""Tasks that a user brings, whose scorer evaluates the answer. One says that its answers may share a process."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from reasoning_gym.factory import ProceduralDataset, register_dataset


@dataclass
class GuestConfig:
    size: int = 1
    seed: int = 0
    right: int = 4

    def validate(self) -> None:
        if self.right < 0:
            raise ValueError("right must not be negative")


class EvaluatingDataset(ProceduralDataset):
    """A careless scorer."""

    def __init__(self, config: GuestConfig) -> None:
        super().__init__(config=config, seed=config.seed, size=config.size)

    def __getitem__(self, idx: int) -> dict[str, Any]:
        return {"question": "2 + 2 =", "answer": str(self.config.right), "metadata": {"source_dataset": "evaluating"}}

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float:
        return 1.0 if eval(str(answer)) == self.config.right else 0.0


class SharingDataset(EvaluatingDataset):
    rg_env_fresh = False


class PointsDataset(EvaluatingDataset):
    """Gives as many points as the answer says."""

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float:
        return float(str(answer).removeprefix("<answer>").removesuffix("</answer>"))


class WaitingDataset(EvaluatingDataset):
    """Waits a minute while it is made."""

    def __init__(self, config: GuestConfig) -> None:
        super().__init__(config)
        time.sleep(60)


for name in ("evaluating", "second", "third"):
    register_dataset(name, EvaluatingDataset, GuestConfig)
register_dataset("sharing", SharingDataset, GuestConfig)
register_dataset("points", PointsDataset, GuestConfig)
register_dataset("waiting", WaitingDataset, GuestConfig)
