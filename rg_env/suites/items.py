"""Items as Reasoning Gym's own evaluations make them: `create_dataset(task, size=…, seed=…, **options)[index]`.

Invariant: an item is a pure function of these arguments. Unlike the items of `rg_env.tasks.items`, it belongs to no
split, and nothing is redrawn, so that questions are those of upstream's evaluations. The generators that read more than
their seed are made reproducible (`rg_env.tasks.upstream.generators`); their questions may differ from published ones,
which depended on the process that made them.
"""

from __future__ import annotations

import decimal
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from rg_env.choices import Split
from rg_env.errors import ConfigError, describe, need_number
from rg_env.tasks import Item, encode_entry, hash64
from rg_env.tasks.registry import check_name, check_options
from rg_env.tasks.upstream.dataset import COMPUTED_AT_CREATION, CPU_SECONDS, reasoning_gym
from rg_env.tasks.upstream.deadline import make_in_time
from rg_env.tasks.upstream.generators import FIXES

DEFAULT_SIZE = 500
"""Upstream's default of `size`."""


class SuiteTask:
    """The items of one task. Thread-safe.

    Args:
        name: the task.
        options: fields of its config.
        size: number of items, at least 1.
        seed: of the dataset, at least 0.

    Raises:
        ConfigError: the task or an option does not exist, or the task refuses the options.
    """

    def __init__(self, name: str, options: Mapping[str, Any], size: int, seed: int) -> None:
        check_name(name)
        need_number(f"{name}.size", size, whole=True, at_least=1)
        need_number(f"{name}.seed", seed, whole=True, at_least=0, below=2**63)
        self.name, self.size, self.seed = name, size, seed
        self.options = check_options(name, options)
        scope = self.options | ({"size": size} if name in COMPUTED_AT_CREATION else {})
        self._id = f"{name}-{hash64(encode_entry(scope)):016x}-{seed}" if scope else f"{name}-default-{seed}"
        self._dataset: Any = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Item]:
        return (self.item(index) for index in range(self.size))

    def item(self, index: int) -> Item:
        """An item.

        Args:
            index: in [0, size).

        Raises:
            ConfigError: upstream cannot make it.
        """
        # A fresh context: decimal_arithmetic changes the precision of the current one.
        with self._lock, decimal.localcontext(decimal.Context()):
            try:
                entry = dict(make_in_time(lambda: self._create()[index], CPU_SECONDS))
                entry["metadata"] = {"source_dataset": self.name, **entry["metadata"]}
                entry_json = encode_entry(entry)
            except Exception as error:
                raise ConfigError(f"task {self.name!r} cannot make item {index}: {describe(error)}") from error
        return Item(
            id=f"{self._id}-{index}",
            task=self.name,
            split=Split.EVAL.value,
            index=index,
            seed=self.seed,
            entry=entry,
            entry_json=entry_json,
            config=self.options or None,
            config_json=encode_entry(self.options),
        )

    def _create(self) -> Any:
        if self._dataset is None:
            dataset = reasoning_gym().create_dataset(self.name, **self.options, size=self.size, seed=self.seed)
            FIXES.get(self.name, lambda _: None)(dataset)
            self._dataset = dataset
        return self._dataset
