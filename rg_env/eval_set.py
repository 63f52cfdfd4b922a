"""The fixed evaluation set: the same few questions of every task, independent of the weights.

Invariant: an item is a pure function of the arguments, and the first items of a larger set are those of a smaller one.
The items are made in a thread while the models are loaded; whatever raises there is raised by whoever asks for them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from rg_env.config import RGDumpConfig
from rg_env.dataset import Complexity, ItemSource, Rows, prompt_options
from rg_env.errors import need_number
from rg_env.prompts import Prompts
from rg_env.tasks import Item, ItemStream, TaskMix


class EvalSet(Rows):
    """The items of every task of a mix, one of each task in turn.

    The constructor starts to make them; whoever asks for them waits.

    Args:
        tasks, seed: as in `rg_env.dataset.ReasoningGymDataset`.
        samples_per_task: at least 1. Questions are distinct until a task runs out of them.
        complexity: None: the tasks' default options. A number in [0, 1]: all items have this complexity. `random`: the
            items of a task have the `FIXED_COMPLEXITIES` in turn, without those at which it has no items.
        prompt: as in `ReasoningGymDataset`.

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
        arguments = (TaskMix.parse(tasks), seed, samples_per_task, complexity)
        threading.Thread(target=self._make, args=arguments, name="rg-eval-set", daemon=True).start()

    @classmethod
    def of(cls, config: RGDumpConfig, **limits: Any) -> EvalSet:
        """The fixed evaluation set of the settings; `limits` as in `rg_env.dataset.prompt_options`."""
        options = prompt_options(config, **limits)
        return cls(config.tasks, config.eval_seed, config.num_eval_samples_per_task, **options)

    @property
    def items(self) -> Sequence[Item]:
        """All items, one of each task in turn. Waits for them, and raises what making them has raised."""
        return self._made.result()

    def __len__(self) -> int:
        return len(self.items)

    def item(self, index: int) -> Item:
        return self.items[index]

    def _make(self, mix: TaskMix, seed: int, samples_per_task: int, complexity: Complexity) -> None:
        try:
            source = ItemSource(mix, seed, "eval", complexity, self.prompts)
            self._made.set_result(list(_items(source, samples_per_task)))
        except BaseException as error:
            self._made.set_exception(error)


def _items(source: ItemSource, samples_per_task: int) -> Iterator[Item]:
    complexities = {task.name: list(source.usable(task)) for task in source.mix.tasks}
    taken: Counter[ItemStream] = Counter()
    for number in range(samples_per_task):
        for task in source.mix.tasks:
            usable = complexities[task.name]
            complexity = usable[number % len(usable)]
            stream = source.stream(task, complexity)
            yield source.label(stream.fixed_item(taken[stream]), complexity, number)
            taken[stream] += 1
