"""Worked solutions for items of nano's tasks, used to pretrain nano.

Invariant: solutions are pure functions of the entry, have no format violation, and score 1.0 with Reasoning Gym's own
scorer. The working is deliberately short: nano has to learn it within minutes, and each token slows a rollout down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rg_env.errors import ConfigError

Entry = Mapping[str, Any]
"""An item of a reasoning_gym dataset: `question`, `answer`, `metadata` with `source_dataset`."""


def _spell_backward(entry: Entry) -> str:
    """Number the letters: `neon` → `1n2e3o4n`."""
    return "".join(f"{position}{letter}" for position, letter in enumerate(entry["metadata"]["word"], 1))


def _chain_sum(entry: Entry) -> str:
    """One operation at a time: `4 - 1 + 5` → `4 - 1 = 3, 3 + 5 = 8`. Integers only."""
    first, *rest = entry["metadata"]["expression"].split()
    total, steps = int(first), []
    for operator, term in zip(rest[::2], rest[1::2], strict=True):
        before, total = total, total + int(term) if operator == "+" else total - int(term)
        steps.append(f"{before} {operator} {term} = {total}")
    return ", ".join(steps)


def _leg_counting(entry: Entry) -> str:
    """Legs of each animal, then the total so far: `2 crabs, 1 ant` → `2 * 10 = 20, 1 * 6 = 6, 20 + 6 = 26`."""
    from reasoning_gym.arithmetic.leg_counting import ANIMALS

    steps, total = [], None
    for animal, count in entry["metadata"]["animals"].items():
        legs = count * ANIMALS[animal]
        steps.append(f"{count} * {ANIMALS[animal]} = {legs}")
        if total is not None:
            steps.append(f"{total} + {legs} = {total + legs}")
        total = legs + (total or 0)
    return ", ".join(steps)


AT_ONCE = "I see it."
"""The think block of a solution without working."""

_WORKING: dict[str, Callable[[Entry], str]] = {
    "basic_arithmetic": _chain_sum,
    "chain_sum": _chain_sum,
    "leg_counting": _leg_counting,
    "spell_backward": _spell_backward,
}

NANO_TASKS: dict[str, dict[str, Any]] = {
    "chain_sum": {"weight": 1, "config": {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 1}},
    "leg_counting": {"weight": 1, "config": {"min_animals": 1, "max_animals": 2, "max_instances": 3}},
    "spell_backward": {"weight": 1, "config": {"min_word_len": 3, "max_word_len": 5}},
}
"""The task mix that nano was pretrained on, in the format of the setting `tasks`."""


def worked_solution(entry: Entry, *, at_once: bool = False) -> str:
    """A correct response to an item: think block, newline, answer block.

    Args:
        at_once: omit the working.

    Raises:
        ConfigError: the task has no worked solutions.
    """
    task = entry["metadata"]["source_dataset"]
    if task not in _WORKING:
        raise ConfigError(f"no worked solutions for task {task!r}; supported: {', '.join(_WORKING)}")
    working = AT_ONCE if at_once else _WORKING[task](entry)
    return f"<think>{working}</think>\n<answer>{entry['answer']}</answer>"
