"""An item and its id, which questions are one, and the names by which an item says who scores it.

Invariant: an id names one question wherever it is used: in rows, evaluation sets, dumps, the server and `rg-env score`.
It carries all that the question is a function of. Not covered: options of the task, of which it carries a hash only, so
that items of other options have other ids.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from rg_env.base.choices import Split
from rg_env.base.errors import ConfigError
from rg_env.tasks.entry_json import decode_entry, encode_entry

ENV_CLASS = "rg_dump"
"""The environment's id in SkyRL Gym, which every row of ours names."""
SCORER_KEY = "file_scorer"
"""Of an entry's metadata: who scores answers to a question of a file. No item of Reasoning Gym has it."""

_PARTS = {
    "task": r"(\w+)",
    "options": r"(?:~([0-9a-f]{8}))?",
    "split": r"-(train|eval)",
    "seed": r"-(\d{1,19})",
    "number": r"-(\d{1,19})",
    "complexity": r"(?:@(\d+(?:\.\d+)?))?",
}
_ITEM_ID = re.compile("".join(_PARTS.values()), re.ASCII)
_OF_GROUP = re.compile(r"(?:\S+:)?([^#\s:]+)(?:#\d+)*")
"""A group's id has the run in front of its item's id; a row's and a rollout's have a number behind it."""


@dataclass(frozen=True)
class ItemId:
    """The parts of an item's id; `str` writes it.

    Attributes:
        number: of the item in the stream of its task, options, seed and split.
        complexity: in [0, 1]; None without a level.
        options: a hash of the options that the mix gives the task; empty without any.
    """

    task: str
    split: str
    seed: int
    number: int
    complexity: float | None = None
    options: str = ""

    def __str__(self) -> str:
        task = f"{self.task}~{self.options}" if self.options else self.task
        text = f"{task}-{self.split}-{self.seed}-{self.number}"
        if self.complexity is None:
            return text
        # Decimal writes all digits that a float needs, and no exponent. Not `normalize`: it rounds to a precision that
        # tasks of Reasoning Gym change.
        return f"{text}@{Decimal(repr(float(self.complexity))):f}".removesuffix(".0")

    @classmethod
    def parse(cls, text: str) -> ItemId | None:
        """Read the id of an item, or that of its row, group or rollout; None for other texts.

        >>> ItemId.parse("gcd-eval-123-7@0.25")
        ItemId(task='gcd', split='eval', seed=123, number=7, complexity=0.25, options='')
        """
        # First what may stand around the id, then its parts.
        whole = _OF_GROUP.fullmatch(text)
        match = _ITEM_ID.fullmatch(whole[1]) if whole else None
        if match is None:
            return None
        task, options, split, seed, number, complexity = match.groups()
        level = None if complexity is None else float(complexity)
        return cls(task, split, int(seed), int(number), level, options or "")


def hash64(*parts: object) -> int:
    """Return a 64-bit hash of the texts of the parts, equal in every process."""
    text = "\0".join(map(str, parts))
    # Half of a surrogate pair may stand in a question or an option, and strict UTF-8 would refuse it.
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def split_of(task: str, question: str) -> Split:
    """Return the split that a drawn question belongs to."""
    # By content and by no seed: what is evaluated is never trained on.
    return Split.EVAL if hash64("split", task, question) % 8 == 0 else Split.TRAIN


def split_of_row(question: str) -> Split:
    """Return the split that a question of a file belongs to, whatever its task is called."""
    return split_of("", same_question(question))


def same_question(question: str) -> str:
    """Return a text that is equal for questions of files that are one: that differ in white space alone."""
    return " ".join(question.split())


def options_mark(options: Mapping[str, Any]) -> str:
    """Return the hash of options that an id carries; empty for none."""
    if not options:
        return ""
    text = encode_entry(dict(sorted(options.items())))  # the order in which somebody wrote them does not count
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


@dataclass(frozen=True)
class Item:
    """An item, as a dataset row carries it in `extra_info`.

    Attributes:
        id: an `ItemId` as text; an item that stands in for another has `#` and the other's number behind it.
        index: its number in the stream of its task: that of the row, unless the row's own item does not fit.
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
            # A row of another origin fails somewhere here, and all of these failures get one message.
            assert isinstance(info, Mapping)
            values: dict[str, Any] = {name: info[column] for column, name in _COLUMNS.items()}
            values["entry"] = decode_entry(values["entry_json"])
            values["config"] = decode_entry(values["config_json"]) or None
            values |= {name: int(values[name]) for name in ("index", "seed")}  # some readers give NumPy's
            if values["complexity"] is not None:  # some readers turn a missing number into NaN
                values["complexity"] = None if math.isnan(values["complexity"]) else float(values["complexity"])
            return cls(**values)
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                "env rg_dump got a row without its item in `extra_info`: "
                "train on ReasoningGymDataset, or on a file from `rg-env dataset`"
            ) from error

    def extra_info(self) -> dict[str, Any]:
        """Return the item as columns: only numbers and strings, so that no file format changes it."""
        return {column: getattr(self, name) for column, name in _COLUMNS.items()}


_COLUMNS = {
    "item": "id",
    **{name: name for name in ("task", "split", "index", "seed")},
    "entry": "entry_json",
    "task_config": "config_json",
    **{name: name for name in ("level", "complexity")},
}
"""Columns of a row, and the attributes that they hold."""
