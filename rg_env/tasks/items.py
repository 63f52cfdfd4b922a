"""Makes the item of (task, options, seed, split, index).

Invariant: an item is a pure function of those and of the prompt limit: the same in every process, thread and order of
access. Splits are disjoint by content: a question belongs to train or to eval, whatever the seeds, and a draw from the
wrong split is redrawn. Every index has an item.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from loguru import logger

from rg_env.choices import Split
from rg_env.errors import ConfigError, describe
from rg_env.tasks.entry_json import decode_entry, encode_entry
from rg_env.tasks.upstream import UnusableItemError
from rg_env.tasks.upstream.dataset import UpstreamDataset
from rg_env.tasks.upstream.deadline import EndlessDrawError

MAX_REDRAWS = 256
"""A draw belongs to eval with probability 1/8, so all 256 miss with probability 10⁻¹⁵."""
MAX_TOO_LONG = 32
"""After this many prompts over the limit and none within it, the task cannot be used."""
MAX_FAILURES = 8
"""After this many errors of the generator and no item, the task cannot be used; so many endless draws end an index."""


def hash64(*parts: object) -> int:
    """A 64-bit hash of the texts of the parts, equal in every process."""
    text = "\0".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def split_of(task: str, question: str) -> Split:
    """The split that a question belongs to."""
    return Split.EVAL if hash64("split", task, question) % 8 == 0 else Split.TRAIN


@dataclass(frozen=True)
class Item:
    """An item, as a dataset row carries it in `extra_info`.

    Attributes:
        id: unique within (mix, prompts): `task-split-seed-index`, with a complexity `task-split-seed-index@c`.
        index: the row that it was drawn for; in a fixed evaluation set, its number among the items of its task.
        seed: the dataset's seed.
        entry: Reasoning Gym's entry (question, answer, metadata), exactly as generated.
        config: the task's options, None if all are defaults.
        entry_json, config_json: the same as one JSON string each (`rg_env.tasks.entry_json`).
        level: JSON object of the level of each attribute of the task's scale (`rg_env.tasks.levels`); "" without.
        complexity: c in [0, 1], of which the level is a function; None without a level.
    """

    id: str
    task: str
    split: str
    index: int
    seed: int
    entry: dict[str, Any]
    entry_json: str
    config: dict[str, Any] | None
    config_json: str
    level: str = ""
    complexity: float | None = None

    @classmethod
    def from_extra_info(cls, info: object) -> Item:
        """Read an item back from a row.

        Raises:
            ConfigError: the row was not made by `ReasoningGymDataset`.
        """
        try:
            assert isinstance(info, Mapping)
            values: dict[str, Any] = {name: info[column] for column, name in _COLUMNS.items()}
            values["entry"] = decode_entry(values["entry_json"])
            values["config"] = decode_entry(values["config_json"]) or None
            values |= {name: int(values[name]) for name in ("index", "seed")}
            if values["complexity"] is not None:  # some readers turn a missing number into NaN
                values["complexity"] = None if math.isnan(values["complexity"]) else float(values["complexity"])
            return cls(**values)
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                "env rg_dump got a row without its item in `extra_info`: "
                "train on ReasoningGymDataset, or on a file from `rg-env dataset`"
            ) from error

    def extra_info(self) -> dict[str, Any]:
        """The item as columns: only numbers and strings, so that no file format changes it."""
        return {column: getattr(self, name) for column, name in _COLUMNS.items()}


_COLUMNS = {
    "item": "id",
    **{name: name for name in ("task", "split", "index", "seed")},
    "entry": "entry_json",
    "task_config": "config_json",
    **{name: name for name in ("level", "complexity")},
}
"""Columns of a row, and the attributes that they hold."""


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
        self._dataset = UpstreamDataset(task, options)
        self._warned: set[str] = set()

    @functools.cached_property
    def first(self) -> Item:
        """The item of index 0, which is the fallback of every index.

        Raises:
            ConfigError: why the task cannot be used.
        """
        return next(self._draws(0, strict=True))

    @functools.cached_property
    def fault(self) -> str:
        """Why the task cannot be used; empty if it can."""
        try:
            _ = self.first
        except ConfigError as error:
            return str(error)
        return ""

    def item(self, index: int) -> Item:
        """The item of an index, which is an integer of at least 0. Raises as `first`."""
        item = next(self._draws(index), None)
        if item is None:
            item = replace(self.first, id=self._id(index), index=index)
            self._warn("none of {} draws fits row {}; such rows repeat its first item", MAX_REDRAWS, index)
        return item

    def fixed_items(self) -> Iterator[Item]:
        """The items of the fixed set, with distinct questions until the task runs out of them. Raises as `first`."""
        questions: set[str] = set()
        for number in itertools.count():
            draws = self._draws(number) if number else iter([self.first])
            item = next(draws, self.first)
            if len(questions) == number:  # otherwise it has repeated one before, so that there is no point in a search
                draws = itertools.chain([item], draws)
                item = next((other for other in draws if other.entry["question"] not in questions), item)
            if item.entry["question"] in questions:
                known = len(questions)
                self._warn("only {} different questions found for the fixed {} set; it repeats some", known, self.split)
            questions.add(item.entry["question"])
            yield replace(item, id=self._id(number), index=number)

    def _draws(self, index: int, strict: bool = False) -> Iterator[Item]:
        """The items drawn for an index that belong to this split and fit the prompt limit, in order.

        Raises:
            ConfigError: with `strict`, why there is none, as soon as that is clear.
        """
        failures = endless = 0
        too_long: list[int] = []
        for redraw in range(MAX_REDRAWS):
            try:
                entry = self._dataset.make(hash64("item", self.seed, self.split, self.task, index, redraw) >> 32)
                entry_json = encode_entry(entry)
            except UnusableItemError:
                continue
            except (OSError, MemoryError):  # not the item's fault
                raise
            except Exception as error:
                failures += 1
                if strict and failures == MAX_FAILURES:
                    raise ConfigError(f"it cannot make an item: {describe(error)}") from error
                if isinstance(error, EndlessDrawError):  # logged where it was ended
                    endless += 1
                    if endless == MAX_FAILURES:
                        return
                elif not strict:
                    self._warn("a draw failed ({}); such draws are made again", describe(error))
                continue
            question = entry["question"]
            if self._prompt_length is not None and self._max_prompt_length is not None:
                length = self._prompt_length(self.task, question)
                if length > self._max_prompt_length:
                    too_long.append(length)
                    if strict and len(too_long) == MAX_TOO_LONG:
                        raise ConfigError(
                            f"its prompts do not fit max_prompt_length={self._max_prompt_length}: "
                            f"the shortest of {MAX_TOO_LONG} has {min(too_long)} tokens"
                        )
                    continue
            if split_of(self.task, question) is self.split:
                yield Item(
                    id=self._id(index),
                    task=self.task,
                    split=self.split.value,
                    index=index,
                    seed=self.seed,
                    entry=entry,
                    entry_json=entry_json,
                    config=self._options or None,
                    config_json=self._config_json,
                )
        if strict:
            raise ConfigError(
                f"it has too few questions: none of {MAX_REDRAWS} draws is usable for the {self.split} split"
            )

    def _warn(self, message: str, *values: object) -> None:
        """Log a warning once."""
        if message not in self._warned:
            self._warned.add(message)
            logger.warning(f"task {{}}: {message}", self.task, *values)

    def _id(self, index: int) -> str:
        return f"{self.task}-{self.split}-{self.seed}-{index}"
