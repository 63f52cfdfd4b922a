"""The fixed evaluation set, made in a thread while the models are loaded.

Invariant: the items are those of `ReasoningGymDataset.fixed_eval`, all of them; whatever raises while they are made is
raised by whoever asks for them. Not covered: an item whose generator never returns.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from rg_env.config import RGDumpConfig
from rg_env.dataset import Example, PromptBuilder, ReasoningGymDataset, collate, prompt_options
from rg_env.tasks import Item, TaskMix


class EvalSet:
    """The items of the fixed evaluation set and their prompts.

    The constructor starts to make them; whoever asks for them waits.

    Args:
        config: tasks, seed, size, complexity mode and prompt.
        limits: as in `rg_env.dataset.prompt_options`.

    Raises:
        ConfigError: wrong settings. Later, when something is asked for: no task can be used, or one that is named with
            options cannot.
    """

    def __init__(self, config: RGDumpConfig, **limits: Any) -> None:
        shaping = prompt_options(config, **limits)
        prompts = ("system_prompt", "worked_examples", "format", "tokenizer", "chat_template_kwargs")
        self._prompts = PromptBuilder.of(**{name: shaping[name] for name in prompts if name in shaping})
        tasks = TaskMix.parse(config.tasks)
        if config.complexity_mode is None:
            tasks.refuse_levels()
        options = {"seed": config.eval_seed, "samples_per_task": config.num_eval_samples_per_task, **shaping}
        self._items: Future[Sequence[Item]] = Future()
        threading.Thread(target=self._make, args=(tasks, options), name="rg-eval-set", daemon=True).start()

    def wait(self) -> None:
        """Wait until all items are made. Raises what making them has raised."""
        self._items.result()

    @property
    def items(self) -> Sequence[Item]:
        """All items, one of each task in turn."""
        return self._items.result()

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Example:
        return self._prompts.example(self.items[index])

    def collate_fn(self, examples: Iterable[Example]) -> list[dict[str, Any]]:
        """A batch in the form that SkyRL's trainer expects."""
        return collate(examples)

    def _make(self, tasks: TaskMix, options: dict[str, Any]) -> None:
        try:
            dataset = ReasoningGymDataset.fixed_eval(tasks, **options)
            self._items.set_result([dataset.item(index) for index in range(len(dataset))])
        except BaseException as error:
            self._items.set_exception(error)
