"""The fixed evaluation set, made in a thread while the models are loaded.

Invariant: the items are those of `ReasoningGymDataset.fixed_eval`, all of them; whatever raises while they are made is
raised by whoever asks for them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from rg_env.config import RGDumpConfig
from rg_env.dataset import Example, ReasoningGymDataset, prompt_options
from rg_env.tasks import Item, TaskMix


class EvalSet:
    """The items of the fixed evaluation set and their prompts.

    The constructor starts to make them; whoever asks for them waits.

    Args:
        config: tasks, seed, size, complexity mode and prompt.
        limits: as in `rg_env.dataset.prompt_options`.

    Raises:
        ConfigError: wrong tasks. Later, when something is asked for: another wrong setting, no task can be used, or one
            that is named with options cannot.
    """

    def __init__(self, config: RGDumpConfig, **limits: Any) -> None:
        tasks = TaskMix.parse(config.tasks)
        if config.complexity_mode is None:
            tasks.refuse_levels()
        options = {"seed": config.eval_seed, "samples_per_task": config.num_eval_samples_per_task}
        options |= prompt_options(config, **limits)
        self._made: Future[tuple[ReasoningGymDataset, Sequence[Item]]] = Future()
        threading.Thread(target=self._make, args=(tasks, options), name="rg-eval-set", daemon=True).start()

    def wait(self) -> None:
        """Wait until all items are made. Raises what making them has raised."""
        self._made.result()

    @property
    def items(self) -> Sequence[Item]:
        """All items, one of each task in turn."""
        return self._made.result()[1]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Example:
        dataset, items = self._made.result()
        return dataset.example_of(items[index])

    collate_fn = staticmethod(ReasoningGymDataset.collate_fn)

    def _make(self, tasks: TaskMix, options: dict[str, Any]) -> None:
        try:
            dataset = ReasoningGymDataset.fixed_eval(tasks, **options)
            self._made.set_result((dataset, [dataset.item(index) for index in range(len(dataset))]))
        except BaseException as error:
            self._made.set_exception(error)
