"""ReasoningGymDataset: the rows that SkyRL trains on.

Invariant: row *i* is a pure function of the arguments and *i*, so workers, resumed runs and the parquet export all see
the same rows. Rows are made on demand, so any length costs nothing. Up front, one item is made of each task that may
have none: with options, with a prompt limit, or from a user's module.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import multiprocessing
import operator
import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, overload

from loguru import logger

from rg_env.atomic import replacing
from rg_env.choices import ResponseFormat
from rg_env.config import RGDumpConfig
from rg_env.curriculum.sampling import stratified_draws
from rg_env.errors import ConfigError, need, need_number
from rg_env.output import console
from rg_env.processes import die_with_parent
from rg_env.prompts import Message, build_messages, check_worked_examples, resolve_system_prompt
from rg_env.tasks import Item, ItemStream, Split, TaskMix, TaskSpec, encode_entry
from rg_env.tasks.draw import FIXED_COMPLEXITIES, Draw, weighted_draw
from rg_env.tasks.levels import Scale, first_questions
from rg_env.tasks.registry import known_to_work
from rg_env.user_code import import_inherited

ENV_CLASS = "rg_dump"
_NAMES_SHOWN = 4
"""How many tasks the representation of a dataset names."""
ROW_GROUP = 1000
"""Rows per parquet row group; an export keeps one group in memory."""

Example = tuple[list[Message], str, dict[str, Any], str]
"""(messages, env class, extras, uid), as SkyRL's loaders expect from a dataset."""


def begin_worker(number: int) -> None:
    """Body of a process that makes rows, before its first row."""
    die_with_parent()
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():  # it ended while this process was starting
        os._exit(1)
    import_inherited()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the trainer ends us


def check_parquet(path: str | Path) -> Path:
    """The path of a parquet file that can be written, even if it exists.

    Raises:
        ConfigError: it cannot be one.
    """
    target = Path(path).expanduser()
    if target.suffix != ".parquet":
        raise ConfigError(f"{target}: the name must end in .parquet")
    if target.is_dir():
        raise ConfigError(f"{target} is a folder: give the name of a file")
    if not target.parent.is_dir():
        raise ConfigError(f"{target}: there is no folder {target.parent}")
    return target


def prompt_options(config: RGDumpConfig, **limits: Any) -> dict[str, Any]:
    """The arguments of `ReasoningGymDataset` that shape prompts, by the settings.

    Args:
        limits: `tokenizer`, `max_prompt_length` and `chat_template_kwargs`, where prompts have a limit.
    """
    names = ("system_prompt", "worked_examples", "format", "complexity_mode")
    return {name: getattr(config, name) for name in names} | limits


class ReasoningGymDataset:
    """Reasoning Gym items on demand, drawn from a task mix by weight.

    Args:
        tasks: the task mix (`rg_env.tasks.TaskMix.parse`); None: the default mix.
        size: number of rows, at least 1.
        seed: in [0, 2⁶³).
        split: `train` or `eval`: disjoint sets of questions for any seeds.
        system_prompt: a name or a text (`rg_env.prompts.resolve_system_prompt`), or None.
        worked_examples: `{question, response}` pairs placed before the question.
        tokenizer: counts prompt tokens; needed only with `max_prompt_length`.
        max_prompt_length: in tokens. Longer prompts are redrawn; a task without shorter ones is dropped from the mix.
        chat_template_kwargs: arguments of the tokenizer's chat template.
        complexity_mode: None: the tasks' default options. `random`: every row has a random complexity in [0, 1], which
            determines its level of difficulty. `curriculum`: a run sets the complexity of each draw. A
            task without levels always has its default options. In a fixed set, with either mode, the items of a task
            have the `FIXED_COMPLEXITIES` in turn.
        stratify: rows per batch, if each batch is to have the shares of the mix, rounded up or down; None: tasks are
            drawn independently.
        samples_per_task: makes a fixed set instead: this many items per task in turn, ignoring weights and `size`;
            questions are distinct until a task runs out of them.
        format: `strict` or `lenient`, the format that the worked examples must have.

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
        system_prompt: str | None = "think_answer",
        worked_examples: Iterable[Mapping[str, Any]] = (),
        tokenizer: Any = None,
        max_prompt_length: int | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        complexity_mode: str | None = None,
        stratify: int | None = None,
        samples_per_task: int | None = None,
        format: str = ResponseFormat.STRICT,
    ) -> None:
        need_number("size", size, whole=True, at_least=1)
        need_number("seed", seed, whole=True, at_least=0, below=2**63)
        if max_prompt_length is not None:
            need_number("max_prompt_length", max_prompt_length, whole=True, at_least=1)
            if tokenizer is None:
                raise ConfigError(f"max_prompt_length={max_prompt_length} needs a tokenizer to count the tokens")
        for name, value in {"samples_per_task": samples_per_task, "stratify": stratify}.items():
            if value is not None:
                need_number(name, value, whole=True, at_least=1)
        need(split in list(Split), "split", split, "must be train or eval")
        modes = (None, "random", "curriculum")
        need(complexity_mode in modes, "complexity_mode", complexity_mode, "must be null, random or curriculum")
        self.seed = seed
        self.split = Split(split)
        self._worked_examples = list(worked_examples)
        check_worked_examples(self._worked_examples, format)
        self._system_prompt = resolve_system_prompt(system_prompt)
        self._tokenizer, self._chat_template_kwargs = tokenizer, dict(chat_template_kwargs or {})
        self._max_prompt_length = max_prompt_length
        self._streams: dict[tuple[str, str], ItemStream] = {}
        self._complexity_mode, self._stratify = complexity_mode, stratify
        self.scales: dict[str, Scale] = {}
        """The scales of difficulty of the tasks that have one; empty without a complexity mode."""
        requested = TaskMix.parse(tasks)
        if complexity_mode is None:
            requested.refuse_levels()
        self.mix = requested.keep(self._prepare)
        """The requested task mix without the tasks that cannot be used."""
        self._options = {task.name: task.options for task in self.mix.tasks}
        self._shares = {task.name: self.mix.share(task) for task in self.mix.tasks}
        self._last_batch: tuple[int, list[Draw]] = (-1, [])
        self._log_cut_levels()
        self._samples_per_task = samples_per_task
        self._size = size if samples_per_task is None else samples_per_task * len(self.mix.tasks)

    @classmethod
    def fixed_eval(
        cls, tasks: Any = None, *, seed: int = 123, samples_per_task: int = 5, **prompt_options: Any
    ) -> ReasoningGymDataset:
        """The fixed evaluation set: the same few questions of every task, independent of the weights.

        Args:
            tasks, seed: as above.
            samples_per_task: items of each task, at least 1.
            prompt_options: the arguments of `ReasoningGymDataset` from `system_prompt` to `chat_template_kwargs`.
        """
        return cls(tasks, seed=seed, split="eval", samples_per_task=samples_per_task, **prompt_options)

    @classmethod
    def train_of(
        cls, config: RGDumpConfig, size: int, batch_size: int | None = None, **limits: Any
    ) -> ReasoningGymDataset:
        """The first `size` rows of the train split of the settings.

        Args:
            batch_size: of training; needed for `sampling=stratified`.
            limits: as in `prompt_options`.
        """
        stratify = batch_size if config.sampling == "stratified" else None
        options = prompt_options(config, **limits)
        return cls(config.tasks, size=size, seed=config.seed, split="train", stratify=stratify, **options)

    def _prepare(self, task: TaskSpec) -> None:
        """Find the usable levels of a task; without any, check its default options unless they are known to work.

        Raises:
            ConfigError: the task cannot be used.
        """
        scale = task.scale if self._complexity_mode else None
        if scale is not None and (task.options or self._max_prompt_length is not None):
            scale = scale.within(functools.cache(functools.partial(self._can_be_used, scale)))
        if scale is not None:
            self.scales[task.name] = scale
        elif task.options or self._max_prompt_length is not None or not known_to_work(task.name):
            self._stream(task.name, task.options).check()

    def _can_be_used(self, scale: Scale, complexity: float) -> bool:
        """Whether items can be made at a complexity and the first ones fit the prompt limit."""
        questions = first_questions(scale.task, encode_entry(scale.options(complexity)))
        limit = self._max_prompt_length
        fit = all(limit is None or self._prompt_length(scale.task, question) <= limit for question in questions)
        return bool(questions) and fit

    def _log_cut_levels(self) -> None:
        whole = {task.name: task.scale for task in self.mix.tasks if self._complexity_mode}
        cut = [name for name, scale in whole.items() if scale is not None and scale != self.scales.get(name)]
        if cut:
            reason = f"prompts over max_prompt_length={self._max_prompt_length}, or options that do not fit"
            logger.info(
                "levels that cannot be used ({}) are left out in {} tasks: {}", reason, len(cut), ", ".join(cut)
            )

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        names = [task.name for task in self.mix.tasks]
        tasks = names if len(names) <= _NAMES_SHOWN else f"<{len(names)} tasks>"
        mode = f", complexity_mode={self._complexity_mode!r}" if self._complexity_mode else ""
        return f"ReasoningGymDataset({tasks}, size={self._size}, seed={self.seed}, split={str(self.split)!r}{mode})"

    @overload
    def __getitem__(self, index: int | Draw) -> Example: ...

    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...

    def __getitem__(self, index: int | slice | Draw) -> Example | list[Example]:
        """(messages, env class, extras, uid) of a row or of a draw, or a list of those of a slice.

        Raises:
            IndexError: unless -len(self) <= index < len(self).
        """
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(self._size))]
        return self.example_of(self.item_of(index if isinstance(index, Draw) else self.draw(index)))

    def draw(self, index: int) -> Draw:
        """What is decided about a row before its item is made: a pure function of the arguments and the index.

        Args:
            index: of a row; negative ones count from the end.

        Raises:
            IndexError: unless -len(self) <= index < len(self).
            ConfigError: `complexity_mode` is `curriculum`, where draws depend on the policy.
        """
        index = operator.index(index)
        if not -self._size <= index < self._size:
            raise IndexError(f"row {index} of a dataset of {self._size} rows")
        index %= self._size
        if self._samples_per_task is not None:
            number, place = divmod(index, len(self.mix.tasks))
            name = self.mix.tasks[place].name
            complexity = FIXED_COMPLEXITIES[number % len(FIXED_COMPLEXITIES)] if name in self.scales else None
            return Draw(name, number, complexity, 1 / len(self.mix.tasks))
        if self._complexity_mode == "curriculum":
            raise ConfigError("complexity_mode='curriculum': the rows depend on the policy and are known in a run only")
        return self.train_draw(index)

    def train_draw(self, number: int) -> Draw:
        """The draw of row `number`, which may be beyond the size; with a curriculum, without its complexity."""
        scaled = self.scales if self._complexity_mode == "random" else {}
        if self._stratify is None:
            return weighted_draw(self.mix, scaled, self.seed, self.split, number)
        batch, place = divmod(number, self._stratify)
        if self._last_batch[0] != batch:
            start, count = batch * self._stratify, self._stratify
            draws = stratified_draws(self._shares, scaled, self.seed, self.split, start, count)
            self._last_batch = batch, draws
        return self._last_batch[1][place]

    def item_of(self, draw: Draw) -> Item:
        """The item of a draw: a pure function of the arguments and the draw."""
        if draw.complexity is None:
            stream, level, suffix = self._stream(draw.task, self._options[draw.task]), "", ""
        else:
            scale = self.scales[draw.task]
            stream = self._stream(draw.task, scale.options(draw.complexity))
            level, suffix = json.dumps(scale.level(draw.complexity)), f"@{draw.complexity:g}"
        try:
            item = stream.item(draw.index) if self._samples_per_task is None else stream.fixed_item(self._rank(draw))
        except ConfigError:
            if not draw.complexity:
                raise
            return self.item_of(dataclasses.replace(draw, complexity=0.0))
        return dataclasses.replace(
            item,
            id=f"{draw.task}-{self.split}-{self.seed}-{draw.index}{suffix}",
            index=draw.index,
            level=level,
            complexity=draw.complexity,
            draw_probability=draw.probability,
            controller_version=draw.controller_version,
        )

    def _rank(self, draw: Draw) -> int:
        """How many items of the fixed set come before this one and are from the same stream."""
        if draw.complexity is None:
            return draw.index
        level = self.scales[draw.task].level
        here = level(draw.complexity)
        same = [level(complexity) == here for complexity in FIXED_COMPLEXITIES]
        rounds, place = divmod(draw.index, len(same))
        return rounds * sum(same) + sum(same[:place])

    def _stream(self, task: str, options: Mapping[str, Any]) -> ItemStream:
        key = (task, encode_entry(dict(options)) if options else "")
        if key not in self._streams:
            counted = self._prompt_length if self._max_prompt_length is not None else None
            stream = ItemStream(task, options, self.seed, self.split, counted, self._max_prompt_length)
            self._streams.setdefault(key, stream)
        return self._streams[key]

    def item(self, index: int) -> Item:
        """The item of a row. Raises as `draw`."""
        return self.item_of(self.draw(index))

    def row(self, index: int) -> dict[str, Any]:
        """A row in SkyRL's form: data_source, prompt, env_class, reward_spec, extra_info. Raises as `draw`."""
        item = self.item(index)
        messages, env_class, extras, _ = self.example_of(item)
        return {"data_source": item.task, "prompt": messages, "env_class": env_class, **extras}

    def example_of(self, item: Item) -> Example:
        """(messages, env class, extras, uid) of an item."""
        answer = item.entry["answer"]
        extras = {
            "data_source": item.task,
            # For people and other tools; our env scores the entry. Empty if the task has no single correct answer.
            "reward_spec": {"method": "rule", "ground_truth": "" if answer is None else str(answer)},
            "extra_info": item.extra_info(),
        }
        return self._messages(item.task, item.entry["question"]), ENV_CLASS, extras, item.id

    def _messages(self, task: str, question: str) -> list[Message]:
        return build_messages(question, task, self._system_prompt, self._worked_examples)

    def _prompt_length(self, task: str, question: str) -> int:
        """Tokens of the prompt as SkyRL counts them, including the chat template's opening of the response."""
        options = {"add_generation_prompt": True, "tokenize": True, "return_dict": False, **self._chat_template_kwargs}
        return len(self._tokenizer.apply_chat_template(self._messages(task, question), **options))

    @staticmethod
    def collate_fn(examples: Iterable[Example]) -> list[dict[str, Any]]:
        """A batch in the form that SkyRL's trainer expects."""
        return [
            {"prompt": messages, "env_class": env_class, "env_extras": extras, "uid": uid}
            for messages, env_class, extras, uid in examples
        ]

    def to_parquet(self, path: str | Path, *, rows: int | None = None) -> None:
        """Write the first `rows` rows (None: all) as a parquet file that stock SkyRL reads.

        Streams: memory does not grow with the number of rows. The file appears complete or not at all.

        Raises:
            ConfigError: the path cannot be a parquet file, or the dataset has fewer rows.
        """
        target = check_parquet(path)
        count = self._size if rows is None else rows
        need_number("rows", count, whole=True, at_least=1, at_most=self._size)
        try:
            with replacing(target) as draft:
                self._stream_parquet(draft, count)
        except OSError as error:
            raise ConfigError(f"{target} cannot be written: {error.strerror or error}") from error

    def _stream_parquet(self, path: Path, count: int) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq
        from rich.progress import Progress

        text = pa.string()
        info = dict.fromkeys(("item", "task", "split", "entry", "task_config", "level"), text)
        info |= dict.fromkeys(("index", "seed", "controller_version"), pa.int64())
        info |= dict.fromkeys(("complexity", "draw_probability"), pa.float64())
        schema = pa.schema(
            {
                "data_source": text,
                "prompt": pa.list_(pa.struct({"role": text, "content": text})),
                "env_class": text,
                "reward_spec": pa.struct({"method": text, "ground_truth": text}),
                "extra_info": pa.struct(info),
            }
        )
        terminal = console(stderr=True)
        with (
            pq.ParquetWriter(path, schema, compression="zstd") as writer,
            Progress(console=terminal, transient=True, disable=not terminal.is_terminal) as progress,
        ):
            for start in progress.track(range(0, count, ROW_GROUP), description=f"writing {count} rows"):
                group = [self.row(index) for index in range(start, min(start + ROW_GROUP, count))]
                writer.write_table(pa.Table.from_pylist(group, schema=schema))
