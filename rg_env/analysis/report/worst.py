"""The tasks with the lowest solve rates, with examples of failed rollouts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rg_env.analysis.report.figures import Section
from rg_env.analysis.report.sample import Group

TASKS = 5
EXAMPLES = 3


@dataclass(frozen=True)
class Worst:
    """A task and its worst rollouts.

    Attributes:
        solve_rate: in the last quarter of the steps, or overall if there are no steps.
        examples: (index of the group in the sample, index of the rollout in the group).
    """

    task: str
    solve_rate: float
    examples: list[tuple[int, int]]


def worst_tasks(section: Section, sample: Sequence[Group], *, solved_at: float) -> list[Worst]:
    """The tasks with the lowest solve rate at the end of training, the worst first, without solved ones.

    Examples are the worst rollouts of the latest groups that have a text and a rollout below `solved_at`.
    """
    at_end = [
        (overall if last is None else last, task)
        for task, overall, last in zip(
            section.tasks["task"], section.tasks["solve_rate"], section.tasks["solve_rate_last"], strict=True
        )
    ]
    return [
        Worst(task, rate, list(_failures(section, sample, task, solved_at)))
        for rate, task in sorted(at_end)[:TASKS]
        if rate < 1
    ]


def _failures(section: Section, sample: Sequence[Group], task: str, solved_at: float) -> Iterator[tuple[int, int]]:
    wanted = (section.run_id, section.phase, task)
    found = 0
    for number in reversed(range(len(sample))):
        group = sample[number]
        if (group["run_id"], group["phase"], group["task"]) != wanted or "prompt" not in group or found == EXAMPLES:
            continue
        rollout = min(range(len(group["rollouts"])), key=lambda k: _base_score(group["rollouts"][k]))
        if _base_score(group["rollouts"][rollout]) < solved_at:
            found += 1
            yield number, rollout


def _base_score(rollout: dict[str, Any]) -> float:
    return rollout["base_score"] or 0.0  # null: not finite
