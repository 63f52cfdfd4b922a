"""Makes the item of (task, options, seed, split, index).

Invariant: the item of a number is a pure function of those: the same in every process, thread and order of access. A
prompt limit decides only which number stands at an index. Splits are disjoint by content: a question belongs to train
or to eval, whatever the seeds, and a draw from the wrong split is redrawn. Every index has an item.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from loguru import logger

from rg_env.base.choices import Split
from rg_env.base.errors import ConfigError, describe
from rg_env.tasks.entry_json import encode_entry
from rg_env.tasks.item import Item, ItemId, hash64, split_of
from rg_env.tasks.upstream import UnusableItemError
from rg_env.tasks.upstream.patched_dataset import UpstreamDataset

MAX_REDRAWS = 256
"""A draw belongs to eval with probability 1/8, so all 256 miss with probability 10⁻¹⁵."""
MAX_TOO_LONG = 32
"""After this many prompts over the limit, before one that can be used, the task cannot be used."""
MAX_NUMBERS = 64
"""So many numbers of the stream are tried for a row, with a prompt limit, before it repeats the first item."""
STRIDE = 10**9
"""Between these numbers; no set of items is that large."""
MAX_FAILURES = 8
"""After this many errors of the generator and no item, the task cannot be used."""


class ItemStream:
    """An unlimited sequence of items of one task, split and seed. Thread-safe; cheap to pickle.

    Args:
        task: its name.
        options: fields of its config, already checked.
        seed: the dataset's seed, at least 0.
        split: which questions to draw.
        prompt_length: (task, question) → length of the prompt in tokens; None: any length is accepted.
        max_prompt_length: in tokens; longer prompts are redrawn.
    """

    def __init__(
        self,
        task: str,
        options: Mapping[str, Any],
        seed: int,
        split: Split,
        prompt_length: Callable[[str, str], int] | None = None,
        max_prompt_length: int | None = None,
    ) -> None:
        self.task, self.seed, self.split = task, seed, split
        self._prompt_length, self._max_prompt_length = prompt_length, max_prompt_length
        self._options, self._config_json = dict(options), encode_entry(dict(options))
        self._dataset = UpstreamDataset(task, options)  # built at the first draw
        self._warned: set[str] = set()

    @functools.cached_property
    def first(self) -> Item:
        """The first item that fits, which is the fallback of every index.

        Raises:
            ConfigError: why the task cannot be used.
        """
        faults = _Faults(self._max_prompt_length)
        # The faults are counted here alone: a task that has made one item is not given up later.
        for number in self._numbers(0):
            item = self._draw(number, faults)
            if item is None:
                break
            if self._fits(item):
                return item
        raise ConfigError(f"it has too few questions: none of {MAX_REDRAWS} draws is usable for the {self.split} split")

    @functools.cached_property
    def fault(self) -> str:
        """Reason why the task cannot be used; empty if it can."""
        try:
            _ = self.first
        except ConfigError as error:
            return str(error)
        return ""

    def item(self, index: int) -> Item:
        """Return the item of an index, which is an integer of at least 0. Raises as `first`.

        If the prompt limit excludes it, another number of the stream takes its place.
        """
        for number in self._numbers(index):
            item = self._draw(number)
            if item is None:
                break
            if self._fits(item):
                return item
        # Every index has an item: a loader that lacks one row would stop training.
        self._warn("no draw fits row {}; such rows repeat its first item", index)
        # With the index in its id, since no two rows may have the same one.
        return replace(self.first, id=f"{self.first.id}#{index}")

    def _numbers(self, index: int) -> range:
        """Return the numbers whose items may stand at an index: its own, and others if prompts have a limit."""
        count = 1 if self._max_prompt_length is None else MAX_NUMBERS
        return range(index, index + count * STRIDE, STRIDE)

    def _length(self, question: str) -> int:
        """Return the tokens of its prompt; 0 if any length is accepted."""
        if self._prompt_length is None or self._max_prompt_length is None:
            return 0
        return self._prompt_length(self.task, question)

    def _fits(self, item: Item) -> bool:
        return self._max_prompt_length is None or self._length(item.entry["question"]) <= self._max_prompt_length

    def _draw(self, number: int, faults: _Faults | None = None) -> Item | None:
        """Draw the item of a number, whatever the prompt limit, so that its id says all; None if none is of this split.

        Raises:
            ConfigError: with `faults`, why the task has no items, as soon as that is clear.
        """
        item_id = str(ItemId(self.task, self.split.value, self.seed, number))
        # Each redraw has a seed of its own, so that it depends on nothing but the number and how often it failed.
        for redraw in range(MAX_REDRAWS):
            try:
                # Encoded at once: an entry that cannot be written is a draw that failed.
                seed = hash64("item", self.seed, self.split, self.task, number, redraw) >> 32  # NumPy takes 32 bits
                entry = self._dataset.make(seed, item_id)
                entry_json = encode_entry(entry)
            # Some tasks refuse many draws: neither a fault nor worth a line in the log.
            except UnusableItemError:
                continue
            except (OSError, MemoryError):  # not the item's fault
                raise
            except Exception as error:
                if faults:
                    faults.note_failure(error)
                else:
                    self._warn("a draw failed ({}); such draws are made again", describe(error))
                continue
            # Before the split is looked at: prompts of either split say whether the limit can be met.
            if faults:
                faults.note_length(self._length(entry["question"]))
            if split_of(self.task, entry["question"]) is self.split:
                return Item(
                    id=item_id,
                    task=self.task,
                    split=self.split.value,
                    index=number,
                    seed=self.seed,
                    entry=entry,
                    entry_json=entry_json,
                    config=self._options or None,
                    config_json=self._config_json,
                )
        return None

    def _warn(self, message: str, *values: object) -> None:
        """Log a warning once."""
        if message not in self._warned:
            self._warned.add(message)
            logger.warning(f"task {{}}: {message}", self.task, *values)


class _Faults:
    """Evidence against a task, counted while its first item is searched."""

    def __init__(self, max_prompt_length: int | None) -> None:
        self._limit = max_prompt_length
        self._failures = 0
        self._too_long: list[int] = []

    def note_failure(self, error: Exception) -> None:
        """Count an error of the generator. Raises ConfigError if there are too many."""
        self._failures += 1
        if self._failures == MAX_FAILURES:
            raise ConfigError(f"it cannot make an item: {describe(error)}") from error

    def note_length(self, length: int) -> None:
        """Count a prompt of this length in tokens if it is over the limit. Raises ConfigError if there are too many."""
        if self._limit is None or length <= self._limit:
            return
        self._too_long.append(length)
        if len(self._too_long) == MAX_TOO_LONG:
            raise ConfigError(
                f"its prompts do not fit max_prompt_length={self._limit}: "
                f"the shortest of {MAX_TOO_LONG} has {min(self._too_long)} tokens"
            )
