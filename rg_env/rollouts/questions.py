"""The questions of a run without training: rows of a dataset, or the items of a suite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rg_env.config import PREFIX, RGDumpConfig
from rg_env.dataset import ENV_CLASS, Example, ReasoningGymDataset
from rg_env.errors import need
from rg_env.prompts import Message, build_messages
from rg_env.suites.suite import FIXED, Fingerprint, Suite, load_suite
from rg_env.tasks import Item


@dataclass(frozen=True, slots=True)
class Question:
    """An item and its prompt. The item's id names the question: it is unique within a run."""

    item: Item
    messages: list[Message]

    def as_example(self) -> Example:
        """The question as SkyRL's loaders expect it."""
        extras = {"data_source": self.item.task, "extra_info": self.item.extra_info()}
        return self.messages, ENV_CLASS, extras, self.item.id


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


def train_questions(config: RGDumpConfig, groups: int, **limits: Any) -> DatasetQuestions:
    """The first `groups` questions of the train split; `limits` as in `rg_env.dataset.prompt_options`.

    Raises:
        ConfigError: the settings need training, or no task can be used.
    """
    mode, right = config.complexity_mode, "depends on a policy in training; use random or null"
    need(mode != "curriculum", f"{PREFIX}.complexity_mode", mode, right)
    need(config.sampling == "weighted", f"{PREFIX}.sampling", config.sampling, "needs training batches; use weighted")
    dataset = ReasoningGymDataset.train_of(config, groups, **limits)
    return DatasetQuestions(dataset, {"split": "train", "seed": config.seed, "tasks": config.tasks})


class SuiteQuestions:
    """The items of a suite, with its system prompt. All are made at once."""

    def __init__(self, suite: Suite, config: RGDumpConfig) -> None:
        self._items = list(suite.items())
        self._prompt = suite.system_prompt
        self._examples = config.worked_examples if suite.name == FIXED else []
        self.facts: Mapping[str, Any] = {"suite": Fingerprint.of(self._items).as_manifest(suite.name)}

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> Question:
        item = self._items[index]
        return Question(item, build_messages(item.entry["question"], item.task, self._prompt, self._examples))


def suite_questions(name: str, config: RGDumpConfig, **limits: Any) -> SuiteQuestions:
    """The questions of a suite; sets the settings that the suite determines: format and system prompt.

    Args:
        limits: of the prompts of `fixed`, as in `rg_env.dataset.prompt_options`.

    Raises:
        ConfigError: there is no such suite, or it cannot be made.
    """
    suite = load_suite(name, config, **limits)
    config.format, config.system_prompt = suite.format.value, suite.system_prompt
    return SuiteQuestions(suite, config)
