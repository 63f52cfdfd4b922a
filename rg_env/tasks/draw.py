"""What is decided about a row before its item is made.

Invariant: an item is a pure function of (mix, seed, split, draw), and the functions in this module are pure. Not
covered: draws that depend on the policy; `rg_env.curriculum` makes them.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from rg_env.choices import Split
from rg_env.tasks.items import hash64
from rg_env.tasks.mix import TaskMix

FIXED_COMPLEXITIES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The complexities that the items of a task in the fixed evaluation set have in turn."""


@dataclass(frozen=True, slots=True)
class Draw:
    """A row of a batch before its item is made.

    Attributes:
        task: its name.
        index: seeds the item; unique within an epoch.
        complexity: c in [0, 1], rounded to 4 decimals; None for the task's default options.
        probability: with which the task was drawn for this row.
        controller_version: number of training batches that the curriculum had observed; 0 without one.
    """

    task: str
    index: int
    complexity: float | None = None
    probability: float = 1.0
    controller_version: int = 0


def uniform(*parts: object) -> float:
    """A number in [0, 1), uniformly distributed over the parts."""
    return hash64(*parts) / 2**64


def random_complexity(seed: int, split: Split, index: int) -> float:
    """The complexity of row `index` with `complexity_mode=random`."""
    return round(uniform("complexity", seed, split, index), 4)


def weighted_draw(mix: TaskMix, scaled: Container[str], seed: int, split: Split, index: int) -> Draw:
    """The draw of row `index` with `sampling=weighted`.

    Args:
        scaled: the tasks whose complexity is random; the others have their default options.
    """
    task = mix.pick(hash64("task", seed, split, index))
    complexity = random_complexity(seed, split, index) if task.name in scaled else None
    return Draw(task.name, index, complexity, mix.share(task))
