"""The scale of difficulty of a task: one number c in [0, 1] → a level of each attribute → the task's options.

Invariant: pure and monotone: a greater c never lowers the level of an attribute. c = 0 and c = 1 are the lowest and the
highest usable level of every attribute. Options that the mix fixes are never changed.

The attributes and their values are those of reasoning-gym's curricula. A range attribute takes the values of its level
alone, not those of easier levels too, so that an item is as hard as its level says. `levels.json` in this folder has
the usable levels, as `scripts/find_levels.py` found them; a mix may use fewer. Not covered: whether levels are usable
together with options that the mix fixes; `Scale.within` tries those.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rg_env.errors import ConfigError, did_you_mean
from rg_env.tasks.entry_json import decode_entry
from rg_env.tasks.items import MAX_REDRAWS, hash64
from rg_env.tasks.upstream.dataset import UpstreamDataset, reasoning_gym

RECORD = Path(__file__).with_name("levels.json")
_WIDENED = frozenset({"puzzle24"})
"""Tasks whose ranges include the values of easier levels: four numbers from 8 to 9 hardly ever make 24."""


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
        attributes: those that no option fixes; at least one has several usable levels.
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

    def steps(self) -> list[float]:
        """The complexities, in 4 decimals and from 0 on, at which the level of an attribute changes."""
        spans = [part.high - part.low for part in self.attributes]
        changes = {math.ceil((level + 0.5) / span * 10_000) / 10_000 for span in spans for level in range(span)}
        return sorted({0.0, *changes})

    def within(self, usable: Callable[[float], bool]) -> Scale | None:
        """The scale without ends that are not usable; None if fewer than two levels are left.

        Args:
            usable: whether the level at a complexity can be used. Tried at both ends; if one is not usable, a bisection
                finds the next one that is.
        """
        steps = self.steps()
        first, last = 0, len(steps) - 1
        if not usable(steps[last]):
            last = bisect.bisect_left(steps, True, key=lambda complexity: not usable(complexity)) - 1
        elif not usable(steps[first]):
            first = bisect.bisect_left(steps, True, key=usable)
        if last <= first or not usable(steps[first]):
            return None
        parts = [replace(part, low=part.level(steps[first]), high=part.level(steps[last])) for part in self.attributes]
        return replace(self, attributes=tuple(parts))


def scale_of(
    task: str, fixed_options: Mapping[str, Any], limits: Mapping[str, tuple[int, int]] | None = None
) -> Scale | None:
    """The scale of a task; None if it has no levels, or if `fixed_options` fix all of its attributes.

    Args:
        limits: for some attributes, the lowest and the highest level of the scale (`check_limits`).
    """
    levels = _record().get(task, {}).get("levels", {}) | dict(limits or {})
    free = tuple(
        replace(part, low=levels[part.name][0], high=levels[part.name][1])
        for part in attributes_of(task)
        if part.name in levels and not part.values[0].keys() & fixed_options.keys()
    )
    return Scale(task, dict(fixed_options), free) if any(part.high > part.low for part in free) else None


def check_limits(task: str, fixed_options: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Check the levels that a mix limits a task to.

    Args:
        limits: attribute → [lowest, highest] level, as YAML or JSON gives them.

    Raises:
        ConfigError: an attribute that the task does not have or that an option fixes, or levels that are not usable.
    """
    scale = scale_of(task, fixed_options)
    usable = {part.name: part for part in scale.attributes} if scale else {}
    checked = {}
    for name, bounds in limits.items():
        where = f"tasks.{task}.levels.{name}"
        if name not in usable:
            hint = did_you_mean(str(name), usable, f"it has {', '.join(usable) or 'none'}")
            raise ConfigError(f"{where}: task {task!r} has no attribute {name!r} that can be moved{hint}")
        low, high = usable[name].low, usable[name].high
        whole = isinstance(bounds, (list, tuple)) and all(type(bound) is int for bound in bounds)
        if not whole or len(bounds) != 2 or not low <= bounds[0] < bounds[1] <= high:
            raise ConfigError(
                f"{where}={bounds!r}: must be [lowest, highest] with {low} <= lowest < highest <= {high}; "
                f"`rg-env tasks --levels {task}` shows the levels"
            )
        checked[name] = (bounds[0], bounds[1])
    return checked


def seconds_of(task: str) -> tuple[float, ...]:
    """CPU seconds an item at complexity 0, 0.5 and 1, as measured when the record was made; empty without levels."""
    return tuple(_record().get(task, {}).get("seconds", ()))


def why_cut(task: str) -> dict[str, str]:
    """Which levels are not usable (`bottom`, `top`, `between`, `all`), and why."""
    found = _record().get(task, {})
    if not attributes_of(task):
        return {"all": "reasoning-gym has no curriculum for it"}
    return {"all": found["unusable"]} if "unusable" in found else dict(found.get("cut", {}))


@functools.cache
def _record() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(RECORD.read_text())
    return read


@functools.cache
def attributes_of(task: str) -> tuple[Attribute, ...]:
    """All attributes of a task's curriculum with all of their levels; empty if it has none."""
    curriculum_class = reasoning_gym().factory.CURRICULA.get(task)
    if curriculum_class is None:
        return ()
    widened = task in _WIDENED
    return tuple(_attribute(part, widened) for part in curriculum_class().attributes.values())


def _attribute(definition: Any, widened: bool) -> Attribute:
    levels = list(definition.levels)
    if not hasattr(definition, "lower_field_name"):
        values = [{definition.field_name: value} for value in levels]
    else:
        lower, upper = definition.lower_field_name, definition.upper_field_name
        pairs = itertools.pairwise(levels) if definition.ensure_interval else zip(levels, levels, strict=True)
        values = [{lower: levels[0] if widened else low, upper: high} for low, high in pairs]
    return Attribute(definition.name, tuple(values), 0, len(values) - 1)


def samples(task: str, options: Mapping[str, Any]) -> Iterator[dict[str, Any] | Exception]:
    """Entries of a task, of both splits, the same ones whenever they are made; the error for a draw that gives none."""
    dataset = UpstreamDataset(task, options)
    for number in itertools.count():
        try:
            yield dataset.make(hash64("levels", task, number) >> 32)
        except Exception as error:
            yield error


@functools.lru_cache(maxsize=1024)  # a run's training and evaluation set ask for the same ones
def first_questions(task: str, options_json: str) -> tuple[str, ...]:
    """The questions of the first two of `samples`; fewer if `MAX_REDRAWS` draws do not give two.

    Args:
        options_json: the task's options, from `encode_entry`.
    """
    draws = itertools.islice(samples(task, decode_entry(options_json)), MAX_REDRAWS)
    return tuple(itertools.islice((draw["question"] for draw in draws if isinstance(draw, dict)), 2))
