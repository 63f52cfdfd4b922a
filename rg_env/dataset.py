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
import threading
from abc import ABC, abstractmethod
from collections import Counter
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
from rg_env.scoring.types import ScorerConfig
from rg_env.tasks import Item, ItemStream, Split, TaskMix, TaskSpec, encode_entry, hash64
from rg_env.tasks.item import ENV_CLASS, ItemId, options_mark
from rg_env.tasks.levels import Scale, base_options, scale_of
from rg_env.tasks.mix import Progress, no_progress
from rg_env.tasks.questions import QuestionStream
from rg_env.tasks.soundness import AUDITED_TASKS

FIXED_COMPLEXITIES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The complexities that the items of a task in the fixed evaluation set have in turn, with `complexity=random`."""
_REDRAWS = 8
"""Random complexities that are tried for a row, before the fixed ones."""
_FIRST_ROWS = 20
"""For each task of a mix, so many rows are searched for the first items."""
_NAMES_SHOWN = 4
"""Tasks that the representation of a dataset names."""

_MOST_REPEATED = 64
"""After so many numbers in a row whose questions came before, a task has no more for the fixed evaluation set."""

ROW_GROUP = 1000
"""Rows per row group; an export keeps one group in memory."""

Complexity = float | str | None
"""The setting `complexity`: None, a number in [0, 1], or `random`."""
Example = tuple[list[Message], str, dict[str, Any], str]
"""(messages, env class, extras, uid), as SkyRL's loaders expect from a dataset."""


def prompt_options(config: RGDumpConfig, **limits: Any) -> dict[str, Any]:
    """Return the arguments of `ReasoningGymDataset` and `EvalSet` that shape questions and prompts, by the settings.

    Args:
        limits: `tokenizer`, `max_prompt_length` and `chat_template_kwargs`, where prompts have a limit.
    """
    names = ("complexity", "system_prompt", "worked_examples", "format", "scorer")
    return {name: getattr(config, name) for name in names} | limits


def scales_of(mix: TaskMix, complexity: Complexity) -> dict[str, Scale]:
    """Return the scales of difficulty of the tasks that have one; none if `complexity` is None.

    Raises:
        ConfigError: an invalid complexity, or one without a task that has levels.
    """
    if complexity is None:
        return {}
    is_number = isinstance(complexity, (int, float)) and not isinstance(complexity, bool) and 0 <= complexity <= 1
    remedy = "must be null, random or a number in [0, 1]"
    need(complexity == "random" or is_number, "complexity", complexity, remedy)
    scales: dict[str, Scale] = {}
    for task in mix.tasks:
        scale = scale_of(task.name, task.options) if task.file is None else None
        if scale:
            scales[task.name] = scale
    if not scales:
        raise ConfigError(
            f"complexity={complexity}: no task of the mix has levels; leave it out, or add tasks with levels "
            "(`rg-env tasks`)"
        )
    return scales


class ItemSource:
    """Makes items of the tasks of a mix. An item is a pure function of the arguments, its task, complexity and number.

    Args:
        tasks, seed, split, complexity, progress, scorer: as in `ReasoningGymDataset`.

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
        scorer: ScorerConfig | None = None,
    ) -> None:
        need_number("seed", seed, whole=True, at_least=0, below=2**63)
        need(split in list(Split), "split", split, "must be train or eval")
        self.seed, self.split, self.complexity, self.prompts = seed, Split(split), complexity, prompts
        self._streams: dict[tuple[str, str], ItemStream] = {}
        self._questions: dict[str, QuestionStream] = {}
        self._said: set[ItemStream] = set()
        mix = TaskMix.parse(tasks)
        self._files, self._scorer = mix.files, scorer
        # Before the tasks are tried, which draws items at their levels.
        self._scales = scales_of(mix, complexity)
        self.mix = mix.keep(lambda task: next(self.usable(task)), progress)

    def usable(self, task: TaskSpec) -> Iterator[float | None]:
        """Yield the complexities of the fixed evaluation set at which a task has items, easy ones first; at least one.

        Raises:
            ConfigError: it has none. Raised by the first `next`.
        """
        if task.file is not None:
            self.questions(task)
            yield None
            return
        # With `random` all of the fixed ones; a task without levels has its default options alone.
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
            raise ConfigError(faults[0])  # of the easiest level

    def _fault(self, task: TaskSpec, complexity: float | None) -> str:
        """Return why a task has no items at a complexity; empty if it has some."""
        # All of these were tried when the levels were found: no draw is needed to know it.
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
        """Return the items of a task at the level of a complexity."""
        # Options of the mix stand alone; ours for tasks that one answer would solve are a default only.
        plain = task.options or base_options(task.name)
        options = plain if complexity is None else self._scales[task.name].options(complexity)
        key = task.name, encode_entry(dict(options))
        if key not in self._streams:
            length, max_length = self.prompts.length, self.prompts.max_length
            stream = ItemStream(task.name, options, self.seed, self.split, length, max_length)
            self._streams.setdefault(key, stream)  # another thread may have made the same one meanwhile
        return self._streams[key]

    def questions(self, task: TaskSpec) -> QuestionStream:
        """Return the questions of a task's file. Raises ConfigError: a row is wrong, or none is for this split."""
        assert task.file is not None
        if task.name not in self._questions:
            # Imported here: most mixes have no files.
            from rg_env.scoring.audit import audit_of, left_out

            audit = audit_of(task.name, task.file, self.split, self._scorer, self.prompts.format)
            limits: dict[str, Any] = {"files": self._files, "left_out": left_out(audit)}
            if self.prompts.max_length is not None:
                limits |= {"prompt_length": self.prompts.length, "max_prompt_length": self.prompts.max_length}
            stream = QuestionStream(task.name, task.file, self.seed, self.split, **limits)
            self._questions.setdefault(task.name, stream)
        return self._questions[task.name]

    def label(self, item: Item, task: TaskSpec, complexity: float | None) -> Item:
        """Return an item of a stream, with what its id must say beside its number, and its level."""
        # A stream is given all options as one, so its id says neither the level nor the mix's own options.
        if complexity is None and not task.options:
            return item
        plain, mark, row = item.id.partition("#")  # with a mark if it stands in for the item of that row
        parts = ItemId.parse(plain)
        assert parts is not None, item.id
        whole = dataclasses.replace(parts, complexity=complexity, options=options_mark(task.options))
        item_id = f"{whole}{mark}{row}"
        if complexity is None:
            return dataclasses.replace(item, id=item_id)
        level = json.dumps(self._scales[item.task].level(complexity))
        return dataclasses.replace(item, id=item_id, level=level, complexity=complexity)

    def item(self, task: TaskSpec, index: int) -> Item:
        """Return the item of a training row.

        With `complexity=random`, a complexity at which it cannot be made (prompts over the limit, options of the mix
        that contradict the level) is redrawn, and the item says which one it has.

        Raises:
            ConfigError: it can be made at none.
        """
        if task.file is not None:
            return self.questions(task).item(index, alone=len(self.mix.tasks) == 1)
        for complexity in self._complexities(task, index):
            stream = self.stream(task, complexity)
            if not self._fault(task, complexity):
                # A stream may run out of draws at this row only: then the next complexity is tried.
                try:
                    return self.label(stream.item(index), task, complexity)
                except ConfigError:
                    self._say(stream, complexity)
        raise ConfigError(f"task {task.name}: no item can be made for row {index}: {stream.fault}")

    def _complexities(self, task: TaskSpec, index: int) -> Iterator[float | None]:
        if self.complexity == "random" and task.name in self._scales:
            for redraw in range(_REDRAWS):
                key: list[object] = ["complexity", self.seed, self.split, index]
                if redraw:
                    key.append(redraw)
                yield round(hash64(*key) / 2**64, 4)
        # After so many misses the fixed ones, of which at least one can be made.
        yield from self.usable(task)


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
        scorer: the settings that the answers of files of questions are tried with (`rg_env.scoring.audit`).
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
        scorer: ScorerConfig | None = None,
        **prompt: Any,
    ) -> None:
        need_number("size", size, whole=True, at_least=1, below=2**63)
        self._size = size
        self.prompts = Prompts(**prompt)
        self._source = ItemSource(tasks, seed, split, complexity, self.prompts, progress, scorer)
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


class EvalSet(Rows):
    """The fixed evaluation set: the items of every task of a mix, one of each task in turn, whatever the weights.

    The first items of a larger set are those of a smaller one. They are made in a thread while the models are loaded;
    whoever asks for them waits, and gets what making them has raised.

    Args:
        tasks, seed, scorer, prompt: as in `ReasoningGymDataset`.
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
        scorer: ScorerConfig | None = None,
        **prompt: Any,
    ) -> None:
        # What only drawing finds out, such as a wrong seed or complexity, is raised when somebody asks for an item.
        need_number("samples_per_task", samples_per_task, whole=True, at_least=1)
        self.prompts = Prompts(**prompt)
        self._made: Future[Sequence[Item]] = Future()
        self.progress = ""
        """How far making the items is, for people."""
        self.left_out = 0
        """How many more questions of files the set would have, if none were left out. Known when the items are made."""
        arguments = (TaskMix.parse(tasks), seed, samples_per_task, complexity, scorer)
        threading.Thread(target=self._make, args=arguments, name="rg-eval-set", daemon=True).start()

    @classmethod
    def of(cls, config: RGDumpConfig, **limits: Any) -> EvalSet:
        """Return the fixed evaluation set of the settings; `limits` as in `prompt_options`."""
        options = prompt_options(config, **limits)
        return cls(config.tasks, config.eval_seed, config.num_eval_samples_per_task, **options)

    def is_made(self, seconds: float) -> bool:
        """Return whether the items are made, or making them failed. Waits for that, at most so many seconds."""
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

    def _make(
        self, mix: TaskMix, seed: int, samples_per_task: int, complexity: Complexity, scorer: ScorerConfig | None
    ) -> None:
        try:
            source = ItemSource(mix, seed, "eval", complexity, self.prompts, self._note_tasks, scorer)
            # One of each task in turn, so that a larger set begins with a smaller one.
            fixed = [_fixed_items(source, task, samples_per_task) for task in source.mix.tasks]
            total = sum(len(of_task) for of_task in fixed)
            self.left_out = sum(of_task.left_out for of_task in fixed)
            items: list[Item] = []
            for number in range(max(map(len, fixed))):
                for of_task in fixed:
                    if number < len(of_task):
                        items.append(of_task.draw(number))
                        self.progress = f"{len(items):,} of {total:,} questions"
            self._made.set_result(items)
        except BaseException as error:  # whoever asks for the items gets it, or would wait for ever
            self._made.set_exception(error)


def _fixed_items(source: ItemSource, task: TaskSpec, samples: int) -> _FixedItems | _FixedQuestions:
    """Return the items of one task of the fixed evaluation set."""
    if task.file is not None:
        return _FixedQuestions(source.questions(task), samples)
    return _FixedItems(source, task, samples)


class _FixedQuestions:
    """The questions of a file for evaluation: all of `eval_path`, or so many of those that `path` sets apart."""

    def __init__(self, questions: QuestionStream, samples: int) -> None:
        self._questions = questions
        wanted = len(questions) + questions.left_out
        if not questions.file.sets_apart:
            wanted = min(samples, wanted)
        self._count = min(wanted, len(questions))
        self.left_out = wanted - self._count

    def __len__(self) -> int:
        return self._count

    def draw(self, turn: int) -> Item:
        """Return the item of a turn."""
        return self._questions.at(turn)


class _FixedItems:
    """The items of one task of the fixed evaluation set. A question that came before is skipped by its number."""

    left_out = 0

    def __init__(self, source: ItemSource, task: TaskSpec, samples: int) -> None:
        self._source, self._task, self._samples = source, task, samples
        self._complexities = list(source.usable(task))
        self._next: Counter[ItemStream] = Counter()  # several complexities may have one level, and so one stream
        self._repeating: set[ItemStream] = set()
        self._questions: set[str] = set()

    def __len__(self) -> int:
        return self._samples

    def draw(self, turn: int) -> Item:
        """Return the item of a turn, in order of the turns. Raises as `ItemSource.item`."""
        complexity = self._complexities[turn % len(self._complexities)]
        stream = self._source.stream(self._task, complexity)
        # Skipped by number and not drawn again, so that an id names the same question in a set of any size.
        tries = 1 if stream in self._repeating else _MOST_REPEATED
        for _ in range(tries):
            item = stream.item(self._next[stream])
            self._next[stream] += 1
            if item.entry["question"] not in self._questions:
                break
        else:
            self._note_end(stream)
        self._questions.add(item.entry["question"])
        return self._source.label(item, self._task, complexity)

    def _note_end(self, stream: ItemStream) -> None:
        if not self._repeating:
            line = "task {}: only {} different questions found for the fixed {} set; it repeats some"
            logger.warning(line, self._task.name, len(self._questions), self._source.split)
        self._repeating.add(stream)


def item_of_id(text: str, tasks: Any = None) -> Item | None:
    """Return the item that an id names, or the id of a group of it; None for other texts.

    Args:
        tasks: the task mix with the files of questions that ids may name; nothing else of it matters.

    Raises:
        ConfigError: there is no such task or no such item, or its task had options of its own.
    """
    parts = ItemId.parse(text)
    if parts is None:
        return None
    file = None if tasks is None else TaskMix.parse(tasks).files.get(parts.task)
    if file is not None:
        return QuestionStream(parts.task, file, parts.seed, Split(parts.split)).of_id(parts)
    # Refused: other options give another question for the same number.
    if parts.options:
        raise ConfigError(
            f"{text}: its run gave {parts.task} options of its own, which an id does not carry: its question is in the "
            "run's dump (`rg-env dumps show`)"
        )
    # A mix of this task alone: an item depends on no other task.
    source = ItemSource([parts.task], parts.seed, parts.split, parts.complexity, Prompts())
    (task,) = source.mix.tasks
    item = source.stream(task, parts.complexity).item(parts.number)
    return source.label(item, task, parts.complexity)


def _write_rows(path: Path, rows: Iterable[Mapping[str, Any]], count: int, format: RowFormat) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from rich.progress import Progress

    # Written out, not taken from the rows: columns that are null in the first group would have no type.
    text = pa.string()
    info = dict.fromkeys(("item", "task", "split", "entry", "task_config", "level"), text)
    info |= {"index": pa.int64(), "seed": pa.int64(), "complexity": pa.float64()}
    message = pa.struct({"role": text, "content": text})
    columns = {"data_source": text, "prompt": pa.list_(message)}
    if format is RowFormat.VERL:
        rows = map(_verl_row, rows)
        columns["extra_info"] = pa.struct(info)
        columns["ability"] = text
        columns["reward_model"] = pa.struct({"style": text, "ground_truth": text})
    else:
        columns["env_class"] = text
        columns["reward_spec"] = pa.struct({"method": text, "ground_truth": text})
        columns["extra_info"] = pa.struct(info)
    schema = pa.schema(columns)
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
    """Return a row as verl has it, which `rg_env.integrations.verl` scores."""
    reward_model = {"style": row["reward_spec"]["method"], "ground_truth": row["reward_spec"]["ground_truth"]}
    shared = {name: row[name] for name in ("data_source", "prompt", "extra_info")}
    return shared | {"ability": "reasoning_gym", "reward_model": reward_model}
