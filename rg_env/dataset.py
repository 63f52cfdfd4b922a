"""The rows that SkyRL trains and evaluates on: `ReasoningGymDataset` and `EvalSet`.

Invariant: row *i* is a pure function of the arguments and *i*, so workers, resumed runs and the Parquet export all see
the same rows. Rows are made on demand, so any size costs nothing. Up front, one item is made of each task that may have
none: with options, with a prompt limit, or from a user's module.

`ItemSource` makes items, `Rows` turns them into rows; `ReasoningGymDataset` and `EvalSet` decide which item is row *i*.
"""

from __future__ import annotations

import dataclasses
import json
import operator
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from itertools import batched
from pathlib import Path
from typing import Any, overload

from loguru import logger

from rg_env.atomic import check_output, new_file
from rg_env.choices import RowFormat
from rg_env.config import RGDumpConfig
from rg_env.errors import ConfigError, need, need_number
from rg_env.output import console
from rg_env.prompts import Message, Prompts
from rg_env.tasks import Item, ItemStream, Split, TaskMix, TaskSpec, encode_entry, hash64
from rg_env.tasks.levels import Scale, base_options, scale_of
from rg_env.tasks.mix import Progress, no_progress
from rg_env.tasks.soundness import AUDITED_TASKS

ENV_CLASS = "rg_dump"
FIXED_COMPLEXITIES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The complexities that the items of a task in the fixed evaluation set have in turn, with `complexity=random`."""
_REDRAWS = 8
"""Random complexities that are tried for a row, before the fixed ones."""
_NAMES_SHOWN = 4
"""How many tasks the representation of a dataset names."""

_ITEM_ID = re.compile(r"(?:\S+:)?(\w+)-(train|eval)-(\d+)-(\d+)(?:@(\d+(?:\.\d+)?))?(?:#\d+)?")

ROW_GROUP = 1000
"""Rows per row group; an export keeps one group in memory."""

Complexity = float | str | None
"""The setting `complexity`: None, a number in [0, 1], or `random`."""
Example = tuple[list[Message], str, dict[str, Any], str]
"""(messages, env class, extras, uid), as SkyRL's loaders expect from a dataset."""


def prompt_options(config: RGDumpConfig, **limits: Any) -> dict[str, Any]:
    """The arguments of `ReasoningGymDataset` and `EvalSet` that shape questions and prompts, by the settings.

    Args:
        limits: `tokenizer`, `max_prompt_length` and `chat_template_kwargs`, where prompts have a limit.
    """
    names = ("complexity", "system_prompt", "worked_examples", "format")
    return {name: getattr(config, name) for name in names} | limits


def scales_of(mix: TaskMix, complexity: Complexity) -> dict[str, Scale]:
    """The scales of difficulty of the tasks that have one; none if `complexity` is None.

    Raises:
        ConfigError: an invalid complexity, or one without a task that has levels.
    """
    if complexity is None:
        return {}
    is_number = isinstance(complexity, (int, float)) and not isinstance(complexity, bool) and 0 <= complexity <= 1
    right = "must be null, random or a number in [0, 1]"
    need(complexity == "random" or is_number, "complexity", complexity, right)
    scales = {task.name: scale for task in mix.tasks if (scale := scale_of(task.name, task.options))}
    if not scales:
        raise ConfigError(
            f"complexity={complexity}: no task of the mix has levels; leave it out, or add tasks with levels "
            "(`rg-env tasks`)"
        )
    return scales


class ItemSource:
    """Makes items of the tasks of a mix. An item is a pure function of the arguments, its task, complexity and number.

    Args:
        tasks, seed, split, complexity, progress: as in `ReasoningGymDataset`.

    Attributes:
        mix: the requested mix without the tasks that cannot be used.
    """

    def __init__(
        self,
        tasks: Any,
        seed: int,
        split: str,
        complexity: Complexity,
        prompts: Prompts,
        progress: Progress = no_progress,
    ) -> None:
        need_number("seed", seed, whole=True, at_least=0, below=2**63)
        need(split in list(Split), "split", split, "must be train or eval")
        self.seed, self.split, self.complexity, self.prompts = seed, Split(split), complexity, prompts
        self._streams: dict[tuple[str, str], ItemStream] = {}
        self._said: set[ItemStream] = set()
        mix = TaskMix.parse(tasks)
        self._scales = scales_of(mix, complexity)
        self.mix = mix.keep(lambda task: next(self.usable(task)), progress)

    def usable(self, task: TaskSpec) -> Iterator[float | None]:
        """The complexities of the fixed evaluation set at which a task has items, from easy to hard; at least one.

        Raises:
            ConfigError: it has none. Raised by the first `next`.
        """
        complexities: tuple[float | None, ...] = FIXED_COMPLEXITIES
        if task.name not in self._scales:
            complexities = (None,)
        elif isinstance(self.complexity, (int, float)):
            complexities = (self.complexity,)
        faults = []
        for complexity in complexities:
            if fault := self._fault(task, complexity):
                faults.append(fault)
            else:
                yield complexity
        if len(faults) == len(complexities):
            raise ConfigError(faults[0])

    def _fault(self, task: TaskSpec, complexity: float | None) -> str:
        """Why a task has no items at a complexity; empty if it has some."""
        if not task.options and self.prompts.max_length is None and task.name in AUDITED_TASKS:
            return ""
        stream = self.stream(task, complexity)
        if stream.fault:
            self._say(stream, complexity)
        return stream.fault

    def _say(self, stream: ItemStream, complexity: float | None) -> None:
        if self.complexity == "random" and complexity is not None and stream not in self._said:
            self._said.add(stream)
            line = "task {}: items near complexity {:g} get another one: {}"
            logger.info(line, stream.task, complexity, stream.fault)

    def stream(self, task: TaskSpec, complexity: float | None) -> ItemStream:
        """The items of a task at the level of a complexity."""
        plain = task.options or base_options(task.name)
        options = plain if complexity is None else self._scales[task.name].options(complexity)
        key = task.name, encode_entry(dict(options))
        if key not in self._streams:
            limits = self.prompts.length, self.prompts.max_length
            self._streams.setdefault(key, ItemStream(task.name, options, self.seed, self.split, *limits))
        return self._streams[key]

    def label(self, item: Item, complexity: float | None, index: int) -> Item:
        """An item of a stream with its place in a set, and its level."""
        if complexity is None:
            return item
        item_id = f"{item.task}-{self.split}-{self.seed}-{index}@{complexity:g}"
        level = json.dumps(self._scales[item.task].level(complexity))
        return dataclasses.replace(item, id=item_id, index=index, level=level, complexity=complexity)

    def item(self, task: TaskSpec, index: int) -> Item:
        """The item of a training row.

        With `complexity=random`, a complexity at which it cannot be made (prompts over the limit, options of the mix
        that contradict the level) is redrawn, and the item says which one it has.

        Raises:
            ConfigError: it can be made at none.
        """
        for complexity in self._complexities(task, index):
            stream = self.stream(task, complexity)
            if not self._fault(task, complexity):
                try:
                    return self.label(stream.item(index), complexity, index)
                except ConfigError:
                    self._say(stream, complexity)
        raise ConfigError(f"task {task.name}: no item can be made for row {index}: {stream.fault}")

    def _complexities(self, task: TaskSpec, index: int) -> Iterator[float | None]:
        if self.complexity == "random" and task.name in self._scales:
            for redraw in range(_REDRAWS):
                key = ("complexity", self.seed, self.split, index, *([redraw] if redraw else []))
                yield round(hash64(*key) / 2**64, 4)
        yield from self.usable(task)


class Rows(ABC):
    """A sequence of items as SkyRL's rows."""

    prompts: Prompts

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def item(self, index: int) -> Item:
        """The item of a row; negative indices count from the end.

        Raises:
            IndexError: unless -len(self) <= index < len(self).
        """

    def row(self, index: int) -> dict[str, Any]:
        """A row in SkyRL's form: data_source, prompt, env_class, reward_spec, extra_info. Raises as `item`."""
        messages, env_class, extras, _ = self.example_of(self.item(index))
        return {"data_source": extras["data_source"], "prompt": messages, "env_class": env_class, **extras}

    @overload
    def __getitem__(self, index: int) -> Example: ...

    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...

    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        """(messages, env class, extras, uid) of a row, or a list of those of a slice. Raises as `item`."""
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
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
        """A batch in the form that SkyRL's trainer expects."""
        return [
            {"prompt": messages, "env_class": env_class, "env_extras": extras, "uid": uid}
            for messages, env_class, extras, uid in examples
        ]

    def to_parquet(self, path: str | Path, *, rows: int | None = None, format: RowFormat = RowFormat.SKYRL) -> None:
        """Write the first `rows` rows (None: all) as a Parquet file that a trainer reads; replaces an existing file.

        Raises:
            ConfigError: the path cannot be a Parquet file, it cannot be written, or there are fewer rows.
        """
        count = len(self) if rows is None else rows
        need_number("rows", count, whole=True, at_least=1, at_most=len(self))
        target = check_output(path, ".parquet")
        with new_file(target) as draft:
            _write_rows(draft, map(self.row, range(count)), count, format)


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
        prompt: arguments of `rg_env.prompts.Prompts`: `system_prompt`, `worked_examples`, `format`, `tokenizer`,
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
        **prompt: Any,
    ) -> None:
        need_number("size", size, whole=True, at_least=1)
        self._size = size
        self.prompts = Prompts(**prompt)
        self._source = ItemSource(tasks, seed, split, complexity, self.prompts, progress)
        self.mix = self._source.mix
        """The requested task mix without the tasks that cannot be used."""

    @classmethod
    def train_of(
        cls, config: RGDumpConfig, size: int, progress: Progress = no_progress, **limits: Any
    ) -> ReasoningGymDataset:
        """The first `size` rows of the train split of the settings; `limits` as in `prompt_options`."""
        options = prompt_options(config, **limits)
        return cls(config.tasks, size=size, seed=config.seed, split="train", progress=progress, **options)

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        names, source = [task.name for task in self.mix.tasks], self._source
        tasks = names if len(names) <= _NAMES_SHOWN else f"<{len(names)} tasks>"
        level = f", complexity={source.complexity!r}" if source.complexity is not None else ""
        return (
            f"ReasoningGymDataset({tasks}, size={self._size}, seed={source.seed}, split={str(source.split)!r}{level})"
        )

    def item(self, index: int) -> Item:
        index = operator.index(index)
        if not -self._size <= index < self._size:
            raise IndexError(f"row {index} of a dataset of {self._size} rows")
        return self.item_of_run(index % self._size)

    def item_of_run(self, number: int) -> Item:
        """The item of row `number` of a run, which may be beyond the size: a later epoch has new rows."""
        source = self._source
        return source.item(self.mix.pick(hash64("task", source.seed, source.split, number)), number)


class EvalSet(Rows):
    """The fixed evaluation set: the items of every task of a mix, one of each task in turn, whatever the weights.

    The first items of a larger set are those of a smaller one. They are made in a thread while the models are loaded;
    whoever asks for them waits, and gets what making them has raised.

    Args:
        tasks, seed, prompt: as in `ReasoningGymDataset`.
        samples_per_task: at least 1. Questions are distinct until a task runs out of them.
        complexity: None: the tasks' default options. A number in [0, 1]: all items have this complexity. `random`: the
            items of a task have the `FIXED_COMPLEXITIES` in turn, without those at which it has no items.

    Raises:
        ConfigError: an argument is impossible. Later, when something is asked for: no task can be used, or one that is
            named with options cannot.
    """

    def __init__(
        self,
        tasks: Any = None,
        seed: int = 123,
        samples_per_task: int = 5,
        *,
        complexity: Complexity = None,
        **prompt: Any,
    ) -> None:
        need_number("samples_per_task", samples_per_task, whole=True, at_least=1)
        self.prompts = Prompts(**prompt)
        self._made: Future[Sequence[Item]] = Future()
        self.progress = ""
        """How far making the items is, for people."""
        arguments = (TaskMix.parse(tasks), seed, samples_per_task, complexity)
        threading.Thread(target=self._make, args=arguments, name="rg-eval-set", daemon=True).start()

    @classmethod
    def of(cls, config: RGDumpConfig, **limits: Any) -> EvalSet:
        """The fixed evaluation set of the settings; `limits` as in `prompt_options`."""
        options = prompt_options(config, **limits)
        return cls(config.tasks, config.eval_seed, config.num_eval_samples_per_task, **options)

    def is_made(self, seconds: float) -> bool:
        """Whether the items are made, or making them failed. Waits for that, at most so many seconds."""
        return bool(wait([self._made], seconds).done)

    @property
    def items(self) -> Sequence[Item]:
        """All items, one of each task in turn. Waits for them, and raises what making them has raised."""
        return self._made.result()

    def __len__(self) -> int:
        return len(self.items)

    def item(self, index: int) -> Item:
        return self.items[index]

    def _note_tasks(self, done: int, total: int) -> None:
        self.progress = f"{done} of {total} tasks tried"

    def _make(self, mix: TaskMix, seed: int, samples_per_task: int, complexity: Complexity) -> None:
        try:
            source = ItemSource(mix, seed, "eval", complexity, self.prompts, self._note_tasks)
            complexities = {task.name: list(source.usable(task)) for task in source.mix.tasks}
            fixed: dict[ItemStream, Iterator[Item]] = {}
            items = []
            for number in range(samples_per_task):
                for task in source.mix.tasks:
                    usable = complexities[task.name]
                    complexity = usable[number % len(usable)]
                    stream = source.stream(task, complexity)
                    item = next(fixed.setdefault(stream, stream.fixed_items()))
                    items.append(source.label(item, complexity, number))
                    self.progress = f"{len(items):,} of {samples_per_task * len(source.mix.tasks):,} questions"
            self._made.set_result(items)
        except BaseException as error:
            self._made.set_exception(error)


def item_of_id(item_id: str) -> Item | None:
    """The item that an id names, or the id of a group of it, with its task's default options; None for other texts.

    Raises:
        ConfigError: there is no such task, or it has no such item.
    """
    match = _ITEM_ID.fullmatch(item_id)
    if match is None:
        return None
    task, split, seed, index, complexity = match.groups()
    share = None if complexity is None else float(complexity)
    rows = ReasoningGymDataset([task], size=int(index) + 1, seed=int(seed), split=split, complexity=share)
    return rows.item(int(index))


def _write_rows(path: Path, rows: Iterable[Mapping[str, Any]], count: int, format: RowFormat) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from rich.progress import Progress

    text = pa.string()
    info = dict.fromkeys(("item", "task", "split", "entry", "task_config", "level"), text)
    info |= {"index": pa.int64(), "seed": pa.int64(), "complexity": pa.float64()}
    schema = pa.schema(
        {
            "data_source": text,
            "prompt": pa.list_(pa.struct({"role": text, "content": text})),
            "env_class": text,
            "reward_spec": pa.struct({"method": text, "ground_truth": text}),
            "extra_info": pa.struct(info),
        }
    )
    if format is RowFormat.VERL:
        rows = map(_verl_row, rows)
        verl = {"ability": text, "reward_model": pa.struct({"style": text, "ground_truth": text})}
        schema = pa.schema([*(schema.field(name) for name in ("data_source", "prompt", "extra_info")), *verl.items()])
    terminal = console(stderr=True)
    with (
        pq.ParquetWriter(path, schema, compression="zstd") as writer,
        Progress(console=terminal, transient=True, disable=not terminal.is_terminal) as progress,
    ):
        bar = progress.add_task(f"writing {count} rows", total=count)
        for group in batched(rows, ROW_GROUP):
            writer.write_table(pa.Table.from_pylist(list(group), schema=schema))
            progress.advance(bar, len(group))


def _verl_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row in verl's form, which `rg_env.integrations.verl` scores."""
    reward_model = {"style": row["reward_spec"]["method"], "ground_truth": row["reward_spec"]["ground_truth"]}
    kept = {name: row[name] for name in ("data_source", "prompt", "extra_info")}
    return kept | {"ability": "reasoning_gym", "reward_model": reward_model}
