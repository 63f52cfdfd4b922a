"""The scale of difficulty of a task: one number c in [0, 1] → a level of each attribute → the task's options.

Invariant: pure and monotone: a greater c never lowers the level of an attribute. c = 0 and c = 1 are the lowest and the
highest usable level of every attribute. Options that the mix fixes are never changed.

The attributes and their values are those of reasoning-gym's curricula. A range attribute takes the values of its level
alone, not those of easier levels too, so that an item is as hard as its level says.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rg_env.tasks.upstream.dataset import reasoning_gym


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of a task's curriculum.

    Attributes:
        values: for each level, from easy to hard, the task's options and their values.
        low, high: the lowest and the highest usable level.
    """

    name: str
    values: tuple[Mapping[str, Any], ...]
    low: int
    high: int

    def level(self, complexity: float) -> int:
        """The level at a complexity in [0, 1]."""
        return self.low + math.floor(complexity * (self.high - self.low) + 0.5)


@dataclass(frozen=True, slots=True)
class Scale:
    """The difficulty of a task with the options that a mix fixes.

    Attributes:
        attributes: those that move.
    """

    task: str
    fixed: Mapping[str, Any]
    attributes: tuple[Attribute, ...]

    def level(self, complexity: float) -> dict[str, int]:
        """The level of each attribute at a complexity in [0, 1]."""
        return {attribute.name: attribute.level(complexity) for attribute in self.attributes}

    def options(self, complexity: float) -> dict[str, Any]:
        """The task's options at a complexity in [0, 1]."""
        moved: dict[str, Any] = {}
        for attribute in self.attributes:
            moved |= attribute.values[attribute.level(complexity)]
        return moved | dict(self.fixed)


def scale_of(task: str, fixed_options: Mapping[str, Any]) -> Scale | None:
    """The scale of a task; None if it has no curriculum, or if `fixed_options` fix all of its attributes."""
    free = tuple(part for part in _attributes(task) if not part.values[0].keys() & fixed_options.keys())
    return Scale(task, dict(fixed_options), free) if any(part.high > part.low for part in free) else None


@functools.cache
def _attributes(task: str) -> tuple[Attribute, ...]:
    curriculum_class = reasoning_gym().factory.CURRICULA.get(task)
    if curriculum_class is None:
        return ()
    return tuple(_attribute(part) for part in curriculum_class().attributes.values())


def _attribute(definition: Any) -> Attribute:
    levels = list(definition.levels)
    if not hasattr(definition, "lower_field_name"):
        values = [{definition.field_name: value} for value in levels]
    else:
        lower, upper = definition.lower_field_name, definition.upper_field_name
        if any(isinstance(value, (list, tuple)) for value in levels):
            ranges = [(min(value), max(value)) for value in levels]
        elif definition.ensure_interval:
            ranges = list(itertools.pairwise(levels))
        else:
            ranges = [(value, value) for value in levels]
        values = [{lower: low, upper: high} for low, high in ranges]
    return Attribute(definition.name, tuple(values), 0, len(values) - 1)
