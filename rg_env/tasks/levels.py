"""The scale of difficulty of a task: one number c in [0, 1] → a level of each attribute → the task's options.

Invariant: pure and monotone: a greater c never lowers the level of an attribute. c = 0 and c = 1 are the lowest and the
highest usable level of every attribute. Options that the mix fixes are never changed. Not covered: whether items can be
made at a level with the options that the mix fixes; their maker finds out (`rg_env.rows.dataset`).

The attributes and their values are those of reasoning-gym's curricula. A range attribute takes the values of its level
alone, not those of easier levels too, so that an item is as hard as its level says.

`levels.json` in this folder says which levels are usable. An entry for each task that has a curriculum:
- `levels`: attribute → [lowest, highest] usable level, counted from 0;
- `options`, for a few tasks: what the mix uses in place of upstream's defaults, at all levels that do not set it;
- `cut`, where a scale is shorter than the curriculum: which end (`bottom`, `top`, or `between` for both) → why; also
  `defaults`, the reason for `options`;
- `seconds`: CPU seconds an item at c = 0, 0.5 and 1, as measured when the levels were found;
- or, in place of levels, `unusable`: why the task has none, and always its default options or these `options`.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rg_env.tasks.upstream.patched_dataset import reasoning_gym

RECORD = Path(__file__).with_name("levels.json")
_WIDENED = frozenset({"isomorphic_strings", "puzzle24"})
"""Tasks whose ranges include the values of easier levels: four numbers from 8 to 9 hardly ever make 24, and pairs of
strings of one length are isomorphic exactly if the question is short."""


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
        """Return the level at a complexity in [0, 1]."""
        return self.low + math.floor(complexity * (self.high - self.low) + 0.5)


@dataclass(frozen=True, slots=True)
class Scale:
    """The difficulty of a task with the options that a mix fixes.

    Attributes:
        base: options that levels may change.
        attributes: those that no option fixes; at least one has several usable levels.
    """

    task: str
    base: Mapping[str, Any]
    fixed: Mapping[str, Any]
    attributes: tuple[Attribute, ...]

    def level(self, complexity: float) -> dict[str, int]:
        """Return the level of each attribute at a complexity in [0, 1]."""
        return {attribute.name: attribute.level(complexity) for attribute in self.attributes}

    def options(self, complexity: float) -> dict[str, Any]:
        """Return the task's options at a complexity in [0, 1]."""
        # What the mix fixes comes last, so that no level changes it.
        moved = dict(self.base)
        for attribute in self.attributes:
            moved |= attribute.values[attribute.level(complexity)]
        return moved | dict(self.fixed)


def scale_of(task: str, fixed_options: Mapping[str, Any]) -> Scale | None:
    """Return the scale of a task; None if it has no levels, or if `fixed_options` fix all of its attributes."""
    usable = _record().get(task, {}).get("levels", {})
    free: list[Attribute] = []
    for attribute in attributes_of(task):
        is_fixed = bool(attribute.values[0].keys() & fixed_options.keys())
        if attribute.name in usable and not is_fixed:
            low, high = usable[attribute.name]
            free.append(replace(attribute, low=low, high=high))
    # Also where no attribute is free: `all` of nothing is true.
    if all(attribute.low == attribute.high for attribute in free):
        return None

    # Options that somebody sets stand on upstream's defaults, not on ours.
    base = {} if fixed_options else base_options(task)
    return Scale(task, base, dict(fixed_options), tuple(free))


def base_options(task: str) -> dict[str, Any]:
    """Options in place of upstream's defaults, with which one answer is right too often; empty for most tasks."""
    return dict(_record().get(task, {}).get("options", {}))


def seconds_of(task: str) -> tuple[float, ...]:
    """CPU seconds an item at complexity 0, 0.5 and 1; empty without levels."""
    return tuple(_record().get(task, {}).get("seconds", ()))


def why_cut(task: str) -> dict[str, str]:
    """Return the levels that are not usable (`bottom`, `top`, `between`, `all`, upstream's `defaults`), and why."""
    if not attributes_of(task):
        return {"all": "reasoning-gym has no curriculum for it"}
    # A curriculum that nobody has tried is not used: its levels may be solved by a constant.
    entry = _record().get(task, {"unusable": "its levels were not tried"})
    reasons: dict[str, str] = dict(entry.get("cut", {}))
    return {"all": entry["unusable"]} | reasons if "unusable" in entry else reasons


@functools.cache
def _record() -> dict[str, Any]:
    record: dict[str, Any] = json.loads(RECORD.read_text())
    return record


@functools.cache
def attributes_of(task: str) -> tuple[Attribute, ...]:
    """Return all attributes of a task's curriculum with all of their levels; empty if it has none."""
    curriculum_class = reasoning_gym().factory.CURRICULA.get(task)
    if curriculum_class is None:
        return ()
    return tuple(_attribute(definition, task in _WIDENED) for definition in curriculum_class().attributes.values())


def _attribute(definition: Any, widened: bool) -> Attribute:
    # A scalar attribute sets one option; a range sets the option of its lower and that of its upper end.
    levels = list(definition.levels)
    if not hasattr(definition, "lower_field_name"):
        values = [{definition.field_name: value} for value in levels]
    else:
        lower, upper = definition.lower_field_name, definition.upper_field_name
        # From this level's value to the next one's, or the value alone if the task takes equal ends.
        pairs = itertools.pairwise(levels) if definition.ensure_interval else zip(levels, levels, strict=True)
        values = []
        for low, high in pairs:
            start = levels[0] if widened else low
            values.append({lower: start, upper: high})
    return Attribute(definition.name, tuple(values), 0, len(values) - 1)
