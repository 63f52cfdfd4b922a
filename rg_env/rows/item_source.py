"""Makes the items of a task mix.

Invariant: an item is a pure function of the arguments, its task, complexity and number, so that workers, resumed runs
and exports see the same ones. Up front, one item is made of each task that may have none: with options, with a prompt
limit, or from a user's module.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from loguru import logger

from rg_env.base.errors import ConfigError, need, need_number
from rg_env.configuration.config import ScorerConfig
from rg_env.rows.prompts import Prompts
from rg_env.tasks import Item, ItemStream, Split, TaskMix, TaskSpec, encode_entry, hash64
from rg_env.tasks.item import ItemId, options_mark
from rg_env.tasks.levels import Scale, base_options, scale_of
from rg_env.tasks.mix import Progress, no_progress
from rg_env.tasks.questions import QuestionStream
from rg_env.tasks.soundness import AUDITED_TASKS

FIXED_COMPLEXITIES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The complexities that the items of a task in the fixed evaluation set have in turn, with `complexity=random`."""
_REDRAWS = 8
"""Random complexities that are tried for a row, before the fixed ones."""

Complexity = float | str | None
"""The setting `complexity`: None, a number in [0, 1], or `random`."""


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
        # After this many misses the fixed ones, of which at least one can be made.
        yield from self.usable(task)


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
