"""EvalSet: the fixed evaluation set, the same for every run with its settings."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import cached_property
from typing import Any

from loguru import logger

from rg_env.base.errors import need_number
from rg_env.configuration.config import RGDumpConfig, ScorerConfig
from rg_env.rows.dataset import Rows, prompt_options
from rg_env.rows.item_source import Complexity, ItemSource
from rg_env.rows.prompts import Prompts
from rg_env.tasks import Item, ItemStream, TaskMix, TaskSpec
from rg_env.tasks.questions import QuestionStream

_MOST_REPEATED = 64
"""Numbers in a row whose questions came before, after which a task has no more for the fixed evaluation set."""


Choose = Callable[[Mapping[str, int]], Sequence[str]]
"""The number of items of each task → the task of each item, in order."""


def _in_turn(sizes: Mapping[str, int]) -> list[str]:
    """One of each task in turn, so that a larger set begins with a smaller one."""
    order: list[str] = []
    for turn in range(max(sizes.values(), default=0)):
        order += [task for task, size in sizes.items() if turn < size]
    return order


class EvalSet(Rows):
    """The fixed evaluation set: the items of every task of a mix, one of each task in turn, whatever the weights.

    The first items of a larger set are those of a smaller one. They are made in a thread while the models are loaded;
    a caller who asks for them waits, and gets what making them has raised.

    Args:
        tasks, seed, scorer, prompt: as in `ReasoningGymDataset`.
        samples_per_task: at least 1. Questions are distinct until a task runs out of them.
        complexity: None: the tasks' default options. A number in [0, 1]: all items have this complexity. `random`: the
            items of a task have the `FIXED_COMPLEXITIES` in turn, without those at which it has no items.
        choose: takes the number of items of each task, and returns the task of each item that is made, in order; None:
            one of each task in turn, until all are there.

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
        choose: Choose | None = None,
        **prompt: Any,
    ) -> None:
        # What only drawing finds out, such as a wrong seed or complexity, is raised when somebody asks for an item.
        need_number("samples_per_task", samples_per_task, whole=True, at_least=1)
        mix = TaskMix.parse(tasks)
        self.prompts = Prompts(**prompt, files=mix.files)
        self._made: Future[Sequence[Item]] = Future()
        self.progress = ""
        """How far making the items is, for people."""
        self.size = 0
        """The number of items of the whole set. Known when those that were chosen are made, as is `left_out`."""
        self.left_out = 0
        """How many more questions of files the set would have, if none were left out."""
        arguments = (mix, seed, samples_per_task, complexity, scorer, choose or _in_turn)
        threading.Thread(target=self._make, args=arguments, name="rg-eval-set", daemon=True).start()

    @classmethod
    def of(cls, config: RGDumpConfig, choose: Choose | None = None, **limits: Any) -> EvalSet:
        """Return the fixed evaluation set of the settings; `limits` as in `prompt_options`."""
        options = prompt_options(config, **limits)
        return cls(config.tasks, config.eval_seed, config.num_eval_samples_per_task, choose=choose, **options)

    def is_made(self, seconds: float) -> bool:
        """Return whether the items are made, or making them failed. Waits for that, at most this many seconds."""
        return bool(wait([self._made], seconds).done)

    @property
    def items(self) -> Sequence[Item]:
        """The items that were chosen. Waits for them, and raises what making them has raised."""
        return self._made.result()

    def __len__(self) -> int:
        return len(self.items)

    def item(self, index: int) -> Item:
        return self.items[index]

    def _note_tasks(self, done: int, total: int) -> None:
        self.progress = f"{done} of {total} tasks tried"

    def _make(
        self,
        mix: TaskMix,
        seed: int,
        samples_per_task: int,
        complexity: Complexity,
        scorer: ScorerConfig | None,
        choose: Choose,
    ) -> None:
        try:
            source = ItemSource(mix, seed, "eval", complexity, self.prompts, self._note_tasks, scorer)
            fixed = {task.name: _fixed_items(source, task, samples_per_task) for task in source.mix.tasks}
            self.size = sum(len(of_task) for of_task in fixed.values())
            self.left_out = sum(of_task.left_out for of_task in fixed.values())
            chosen = choose({name: len(of_task) for name, of_task in fixed.items()})
            turns = Counter[str]()
            items: list[Item] = []
            for name in chosen:
                items.append(fixed[name].draw(turns[name]))
                turns[name] += 1
                self.progress = f"{len(items):,} of {len(chosen):,} questions"
            self._made.set_result(items)
        except BaseException as error:  # the caller who asks for the items gets it, or would wait forever
            self._made.set_exception(error)


def _fixed_items(source: ItemSource, task: TaskSpec, samples: int) -> _FixedItems | _FixedQuestions:
    """Return the items of one task of the fixed evaluation set."""
    if task.file is not None:
        return _FixedQuestions(source.questions(task), samples)
    return _FixedItems(source, task, samples)


class _FixedQuestions:
    """The questions of a file for evaluation: all of `eval_path`, or this many of those held out from `path`."""

    def __init__(self, questions: QuestionStream, samples: int) -> None:
        self._questions = questions
        wanted = len(questions) + questions.left_out
        if not questions.file.evaluates_elsewhere:
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
        self._next: Counter[ItemStream] = Counter()  # several complexities may have one level, and so one stream
        self._repeating: set[ItemStream] = set()
        self._questions: set[str] = set()

    def __len__(self) -> int:
        return self._samples

    @cached_property
    def _complexities(self) -> list[float | None]:
        return list(self._source.usable(self._task))

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
