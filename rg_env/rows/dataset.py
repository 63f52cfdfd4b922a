"""The rows that SkyRL trains on: `ReasoningGymDataset`.

Invariant: row *i* is a pure function of the arguments and *i*. Rows are made on demand, so any size costs nothing.
`ItemSource` makes items, `Rows` turns them into rows; `ReasoningGymDataset` and `EvalSet` decide which item is row *i*.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, overload

from rg_env.base.atomic import check_output, new_file
from rg_env.base.choices import RowFormat
from rg_env.base.errors import need_number
from rg_env.configuration.config import RGDumpConfig, ScorerConfig
from rg_env.rows.item_source import Complexity, ItemSource
from rg_env.rows.prompts import Message, Prompts
from rg_env.tasks import Item, TaskMix, TaskSpec, hash64
from rg_env.tasks.item import ENV_CLASS
from rg_env.tasks.mix import Progress, no_progress

_FIRST_ROWS = 20
"""Rows per task of a mix that are searched for the first items."""
_NAMES_SHOWN = 4
"""Tasks that the representation of a dataset names."""

Example = tuple[list[Message], str, dict[str, Any], str]
"""(messages, env class, extras, uid), as SkyRL's loaders expect from a dataset."""


def prompt_options(config: RGDumpConfig, **limits: Any) -> dict[str, Any]:
    """Return the arguments of `ReasoningGymDataset` and `EvalSet` that shape questions and prompts, by the settings.

    Args:
        limits: `tokenizer`, `max_prompt_length` and `chat_template_kwargs`, where prompts have a limit.
    """
    names = ("complexity", "system_prompt", "worked_examples", "format", "scorer")
    return {name: getattr(config, name) for name in names} | limits


class Rows(ABC):
    """A sequence of items as SkyRL's rows."""

    prompts: Prompts

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def item(self, index: int) -> Item:
        """Return the item of a row; negative indices count from the end.

        Raises:
            IndexError: unless -len(self) <= index < len(self).
        """

    def row(self, index: int) -> dict[str, Any]:
        """Return a row as SkyRL has it: data_source, prompt, env_class, reward_spec, extra_info. Raises as `item`."""
        messages, env_class, extras, _ = self.example_of(self.item(index))
        return {"data_source": extras["data_source"], "prompt": messages, "env_class": env_class, **extras}

    @overload
    def __getitem__(self, index: int) -> Example: ...

    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...

    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        """(messages, env class, extras, uid) of a row, or a list of those of a slice. Raises as `item`."""
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return self.example_of(self.item(index))

    def example_of(self, item: Item) -> Example:
        """(messages, env class, extras, uid) of an item."""
        answer = item.entry["answer"]
        extras = {
            "data_source": item.task,
            # For people and other tools; our env scores the entry. Empty if the task has no single correct answer.
            "reward_spec": {"method": "rule", "ground_truth": "" if answer is None else str(answer)},
            "extra_info": item.extra_info(),
        }
        return self.prompts.messages(item.task, item.entry["question"]), ENV_CLASS, extras, item.id

    @staticmethod
    def collate_fn(examples: Iterable[Example]) -> list[dict[str, Any]]:
        """Return a batch as SkyRL's trainer expects it."""
        batch = []
        for messages, env_class, extras, uid in examples:
            batch.append({"prompt": messages, "env_class": env_class, "env_extras": extras, "uid": uid})
        return batch

    def to_parquet(self, path: str | Path, *, rows: int | None = None, format: RowFormat = RowFormat.SKYRL) -> None:
        """Write the first `rows` rows (None: all) as a Parquet file that a trainer reads; replaces an existing file.

        Raises:
            ConfigError: the path cannot be a Parquet file, it cannot be written, or there are fewer rows.
        """
        count = len(self) if rows is None else rows
        # All mistakes before the first row, which may take long.
        need_number("rows", count, whole=True, at_least=1, at_most=len(self))
        target = check_output(path, ".parquet")
        from rg_env.rows.parquet import write_rows

        with new_file(target) as draft:
            write_rows(draft, map(self.row, range(count)), count, format)


class ReasoningGymDataset(Rows):
    """Reasoning Gym items on demand, drawn from a task mix by weight.

    Args:
        tasks: the task mix (`rg_env.tasks.TaskMix.parse`); None: the default mix.
        size: number of rows, at least 1.
        seed: in [0, 2⁶³).
        split: `train` or `eval`: disjoint sets of questions for any seeds.
        complexity: None: the tasks' default options. A number in [0, 1]: all items have this complexity. `random`:
            every row has a random one. A task without levels always has its default options.
        progress: told how many tasks have been tried, and of how many.
        scorer: the settings that the answers of files of questions are tried with (`rg_env.scoring.audit`).
        prompt: arguments of `rg_env.rows.prompts.Prompts`: `system_prompt`, `worked_examples`, `format`, `tokenizer`,
            `max_prompt_length`, `chat_template_kwargs`. A task whose prompts are all too long is left out of the mix.

    Raises:
        ConfigError: an argument is impossible, or no task can be used.
    """

    def __init__(
        self,
        tasks: Any = None,
        size: int = 1_000_000,
        seed: int = 42,
        split: str = "train",
        *,
        complexity: Complexity = None,
        progress: Progress = no_progress,
        scorer: ScorerConfig | None = None,
        **prompt: Any,
    ) -> None:
        need_number("size", size, whole=True, at_least=1, below=2**63)
        self._size = size
        mix = TaskMix.parse(tasks)
        self.prompts = Prompts(**prompt, files=mix.files)
        self._source = ItemSource(mix, seed, split, complexity, self.prompts, progress, scorer)
        self.mix = self._source.mix
        """The requested task mix without the tasks that cannot be used."""

    @classmethod
    def train_of(
        cls, config: RGDumpConfig, size: int, progress: Progress = no_progress, **limits: Any
    ) -> ReasoningGymDataset:
        """Return the first `size` rows of the train split of the settings; `limits` as in `prompt_options`."""
        options = prompt_options(config, **limits)
        return cls(config.tasks, size=size, seed=config.seed, split="train", progress=progress, **options)

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        names, source = [task.name for task in self.mix.tasks], self._source
        tasks = repr(names)
        if len(names) > _NAMES_SHOWN:
            tasks = f"<{len(names)} tasks>"
        level = ""
        if source.complexity is not None:
            level = f", complexity={source.complexity!r}"
        return (
            f"ReasoningGymDataset({tasks}, size={self._size}, seed={source.seed}, split={str(source.split)!r}{level})"
        )

    def item(self, index: int) -> Item:
        index = operator.index(index)  # NumPy's integers, too, but no floats
        if not -self._size <= index < self._size:
            raise IndexError(f"row {index} of a dataset of {self._size} rows")
        return self.item_of_run(index % self._size)

    def item_of_run(self, number: int) -> Item:
        """Return the item of row `number` of a run, which may be beyond the size: a later epoch has new rows."""
        return self._source.item(self.task_of_run(number), number)

    def first_items(self, count: int) -> Iterator[Item]:
        """Yield the first `count` items of each task that has some among the first rows, in the order of the rows."""
        # No other rows: a draw may take long, and the run makes these anyhow.
        rows = min(self._size, _FIRST_ROWS * len(self.mix.tasks))
        made = Counter[str]()
        for number in range(rows):
            task = self.task_of_run(number)
            if made[task.name] < count:
                made[task.name] += 1
                yield self.item_of_run(number)

    def task_of_run(self, number: int) -> TaskSpec:
        """Return the task of row `number`, without making its item."""
        return self.mix.pick(hash64("task", self._source.seed, self._source.split, number))
