"""The questions of a run without training: rows of a dataset, or the items of a suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rg_env.config import RGDumpConfig
from rg_env.dataset import ReasoningGymDataset
from rg_env.errors import need
from rg_env.prompts import Message, build_messages
from rg_env.suites.suite import FIXED, Fingerprint, load_suite
from rg_env.tasks import Item


@dataclass(frozen=True, slots=True)
class Question:
    """An item and its prompt."""

    item: Item
    messages: list[Message]


@dataclass(frozen=True)
class Questions:
    """A sequence of questions.

    Attributes:
        facts: what determines them, as JSON; two runs with equal facts have the same questions.
    """

    facts: Mapping[str, Any]
    number: int
    make: Callable[[int], Question]

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> Question:
        return self.make(index)


def train_questions(config: RGDumpConfig, groups: int) -> Questions:
    """The first `groups` questions of the train split.

    Raises:
        ConfigError: no task can be used.
    """
    dataset = ReasoningGymDataset.train_of(config, groups)

    def question(index: int) -> Question:
        row = dataset.row(index)
        return Question(Item.from_extra_info(row["extra_info"]), row["prompt"])

    return Questions({"split": "train", "seed": config.seed, "tasks": config.tasks}, len(dataset), question)


def suite_questions(name: str, config: RGDumpConfig, items: int | None = None, **limits: Any) -> Questions:
    """The questions of a suite; sets the settings that the suite determines: format and system prompt.

    Args:
        items: take only so many of its questions, evenly over its tasks; None: all.
        limits: of the prompts of `fixed`, as in `rg_env.dataset.prompt_options`.

    Raises:
        ConfigError: there is no such suite, or it cannot be made.
    """
    suite = load_suite(name, config, **limits)
    config.format, config.system_prompt = suite.format.value, suite.system_prompt
    examples = config.worked_examples if suite.name == FIXED else []
    every = list(suite.items())
    asked = every if items is None else _evenly(every, items)
    label = suite.name if len(asked) == len(every) else f"{suite.name}, {len(asked):,} of {len(every):,} questions"

    def question(index: int) -> Question:
        item = asked[index]
        return Question(item, build_messages(item.entry["question"], item.task, suite.system_prompt, examples))

    return Questions({"suite": Fingerprint.of(asked).as_manifest(label)}, len(asked), question)


def _evenly(items: Sequence[Item], count: int) -> list[Item]:
    """The first items of each task, as many of each as there are, up to `count`.

    Raises:
        ConfigError: there are fewer.
    """
    need(count <= len(items), "--items", count, f"the suite has {len(items)} questions")
    places: Counter[str] = Counter()
    turns = []  # of which turn over all tasks an item is
    for index, item in enumerate(items):
        turns.append((places[item.task], index))
        places[item.task] += 1
    return [items[index] for index in sorted(index for _, index in sorted(turns)[:count])]
