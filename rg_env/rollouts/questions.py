"""The questions of a run without training: rows of a dataset, or the items of a suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rg_env.config import PREFIX, RGDumpConfig
from rg_env.dataset import ReasoningGymDataset
from rg_env.errors import need
from rg_env.prompts import Message
from rg_env.tasks import Item


@dataclass(frozen=True, slots=True)
class Question:
    """An item and its prompt. The item's id names the question: it is unique within a run."""

    item: Item
    messages: list[Message]


class Questions(Protocol):
    """A sequence of questions.

    Attributes:
        facts: what determines them, as JSON; two runs with equal facts have the same questions.
    """

    facts: Mapping[str, Any]

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Question: ...


class DatasetQuestions:
    """The rows of a dataset."""

    def __init__(self, dataset: ReasoningGymDataset, facts: Mapping[str, Any]) -> None:
        self._dataset = dataset
        self.facts = facts

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Question:
        row = self._dataset.row(index)
        return Question(Item.from_extra_info(row["extra_info"]), row["prompt"])


def train_questions(config: RGDumpConfig, groups: int) -> DatasetQuestions:
    """The first `groups` questions of the train split.

    Raises:
        ConfigError: the settings need training, or no task can be used.
    """
    mode, right = config.complexity_mode, "depends on a policy in training; use random or null"
    need(mode != "curriculum", f"{PREFIX}.complexity_mode", mode, right)
    need(config.sampling == "weighted", f"{PREFIX}.sampling", config.sampling, "needs training batches; use weighted")
    dataset = ReasoningGymDataset(
        config.tasks, size=groups, seed=config.seed, split="train", complexity_mode=mode, **_prompt_options(config)
    )
    return DatasetQuestions(dataset, {"split": "train", "seed": config.seed, "tasks": config.tasks})


def fixed_questions(config: RGDumpConfig) -> DatasetQuestions:
    """The fixed evaluation set of the settings."""
    each = config.num_eval_samples_per_task
    dataset = ReasoningGymDataset.fixed_eval(
        config.tasks,
        seed=config.eval_seed,
        samples_per_task=each,
        complexity_mode=config.complexity_mode,
        **_prompt_options(config),
    )
    return DatasetQuestions(dataset, {"suite": "fixed", "seed": config.eval_seed, "tasks": config.tasks, "each": each})


def _prompt_options(config: RGDumpConfig) -> dict[str, Any]:
    return {
        "system_prompt": config.system_prompt,
        "worked_examples": config.worked_examples,
        "format": config.format,
    }


class ListedQuestions:
    """Items with one system prompt, as in a suite."""

    def __init__(self, items: Sequence[Question], facts: Mapping[str, Any]) -> None:
        self._items = items
        self.facts = facts

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> Question:
        return self._items[index]
