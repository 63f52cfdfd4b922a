"""Tasks that a user brings, whose scorer does what the answer says. One says that its answers may share a process."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from reasoning_gym.factory import ProceduralDataset, register_dataset

from tests.scoring.file_scorer_functions import acting


@dataclass
class GuestConfig:
    size: int = 1
    seed: int = 0
    right: int = 4

    def validate(self) -> None:
        if self.right < 0:
            raise ValueError("right must not be negative")


class ActingDataset(ProceduralDataset):
    """A scorer with every fault: an answer can keep it busy, end its process, and change what is right there."""

    has_remembered = False

    def __init__(self, config: GuestConfig) -> None:
        super().__init__(config=config, seed=config.seed, size=config.size)

    def __getitem__(self, idx: int) -> dict[str, Any]:
        return {"question": "2 + 2 =", "answer": str(self.config.right), "metadata": {"source_dataset": "acting"}}

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float:
        ActingDataset.has_remembered |= answer == "remember"
        return max(ActingDataset.has_remembered, acting(str(answer), {"answer": str(self.config.right)}))


class SharingDataset(ActingDataset):
    rg_env_fresh = False


class PointsDataset(ActingDataset):
    """Gives as many points as the answer says."""

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float:
        return float(str(answer).removeprefix("<answer>").removesuffix("</answer>"))


class WaitingDataset(ActingDataset):
    """Waits a minute while it is made."""

    def __init__(self, config: GuestConfig) -> None:
        super().__init__(config)
        time.sleep(60)


for name in ("acting", "second", "third"):
    register_dataset(name, ActingDataset, GuestConfig)
register_dataset("sharing", SharingDataset, GuestConfig)
register_dataset("points", PointsDataset, GuestConfig)
register_dataset("waiting", WaitingDataset, GuestConfig)
