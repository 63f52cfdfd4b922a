"""The datasets of reasoning-gym as pure functions of their seed.

Invariant: an item made here depends on (task, options, seed) alone, and making it changes no outside state, in any
thread. Some generators read more than their seed: `generators` lists and fixes them.
"""

from __future__ import annotations

import copy
import decimal
import functools
import importlib
import random
import threading
import types
from collections.abc import Mapping
from typing import Any

from rg_env.base.errors import ConfigError, describe
from rg_env.tasks.soundness import check_audited
from rg_env.tasks.upstream import UnusableItemError
from rg_env.tasks.upstream.clarity import correct
from rg_env.tasks.upstream.generators import FIXES
from rg_env.tasks.upstream.oracles import with_men
from rg_env.tasks.upstream.slow_draws import watched

MIXERS = frozenset({"composite"})
"""Datasets that only mix others, which the task mix does here."""

COMPUTED_AT_CREATION = {"acre": 5, "gsm_symbolic": 1, "list_functions": 1}
"""Tasks whose `__init__` draws the items, so a warm instance cannot be re-seeded, and the size to create them with:
acre draws one category of question at size 1, all three from size 5."""


@functools.cache
def reasoning_gym() -> types.ModuleType:
    """Import the package on first use. Restores Python's global random state, which one of its imports draws from.

    Raises:
        ConfigError: another version than the audited one is installed, or it cannot be imported.
    """
    # Before the import: another version may not even have what this module looks up in it.
    check_audited()
    state = random.getstate()
    try:
        importlib.import_module("rg_env.tasks.upstream.slim_import")
        return importlib.import_module("reasoning_gym")
    except Exception as error:
        raise ConfigError(f"reasoning_gym cannot be imported ({describe(error)}); install it again") from error
    finally:
        random.setstate(state)


def registered() -> dict[str, tuple[type[Any], type[Any]]]:
    """Dataset class and config class of every task, in order of the names."""
    datasets = reasoning_gym().factory.DATASETS
    return {name: datasets[name] for name in sorted(datasets.keys() - MIXERS)}


class UpstreamDataset:
    """One task with one set of options; makes any number of items, each from its own seed.

    Thread-safe, one item at a time. The underlying dataset is built on first use (up to 0.3 CPU s; n_queens of size 12:
    1.3), then copied per item.
    """

    def __init__(self, task: str, options: Mapping[str, Any]) -> None:
        self.task = task
        self.options = dict(options)
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[UpstreamDataset], tuple[Any, ...]]:
        return UpstreamDataset, (self.task, self.options)

    def make(self, seed: int, item: str = "") -> dict[str, Any]:
        """Make the entry of a seed.

        Args:
            seed: in [0, 2³²).
            item: what the log calls it if it takes long, such as its id.

        Raises:
            Exception: whatever upstream raises if it cannot make this item.
            UnusableItemError: draw another one.
        """
        item = item or f"seed {seed}"
        # A fresh context: decimal_arithmetic changes the precision of the current one.
        with self._lock, watched(self.task, item), decimal.localcontext(decimal.Context()):
            warm = self._warm
            config = copy.copy(warm.config)
            config.seed = seed
            # The class of the warm instance, in which the fixes are.
            if self.task in COMPUTED_AT_CREATION:
                dataset = type(warm)(config)
                # The warm instance's: patched for list_functions (`_own_random`), and loaded only once.
                if hasattr(warm, "_generators"):
                    dataset._generators = warm.generators
                entry = dataset[seed % config.size]
            else:
                # A copy, so that the warm instance keeps nothing of this draw.
                dataset = copy.copy(warm)
                dataset.config, dataset.seed = config, seed
                entry = dataset[0]
        if not isinstance(entry.get("question"), str) or not isinstance(entry.get("metadata"), dict):
            raise ValueError("its entry has no question or no metadata")
        # A task may have no stored answer (None), but an empty text could never be given.
        answer = entry.get("answer")
        if isinstance(answer, str) and not answer.strip():
            raise UnusableItemError("its answer is empty, which no response may be")
        entry["metadata"].setdefault("source_dataset", self.task)
        # Last, so that the stored answer is the corrected one wherever the item goes.
        return correct(dict(with_men(entry, self.options)))

    @functools.cached_property
    def _warm(self) -> Any:
        size = COMPUTED_AT_CREATION.get(self.task, 1)
        warm = reasoning_gym().create_dataset(self.task, **self.options, seed=0, size=size)
        FIXES.get(self.task, lambda _: None)(warm)
        return warm
