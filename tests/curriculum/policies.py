"""Scripted policies: a probability of success as a function of the complexity, and what goes wrong besides."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass

from rg_env.curriculum import Controller, Move, ObservedGroup, Tally
from rg_env.dataset import ReasoningGymDataset
from rg_env.tasks.draw import Draw

GROUP_SIZE = 8


def group(task: str, solved: int, version: int = 0, of: int = GROUP_SIZE) -> ObservedGroup:
    """A group of which `of` rollouts count."""
    return ObservedGroup(task, version, Tally(solved, of))


class Curriculum(Controller):
    """A controller and the draws that it gives levels to, as the loader does."""

    def __init__(self, tasks: object, seed: int = 0, stratify: int | None = None) -> None:
        self.rows = ReasoningGymDataset(tasks, seed=seed, complexity_mode="curriculum", stratify=stratify)
        super().__init__(self.rows.scales, target=0.7)

    def plan(self, position: int, count: int) -> list[Draw]:
        return [self.at_level(self.rows.train_draw(row)) for row in range(position, position + count)]


@dataclass
class Policy:
    """Solves a question with a probability that falls linearly with its complexity, from 1 at `skill` − 1/2 to 0 at
    `skill` + 1/2. Whole groups agree with probability `alike`.

    Attributes:
        flawed: tasks of which no rollout counts.
    """

    skill: float
    alike: float = 0.3
    seed: int = 0
    flawed: Collection[str] = ()

    def answer(self, draw: Draw) -> ObservedGroup:
        complexity = 0.0 if draw.complexity is None else draw.complexity
        chance = min(1.0, max(0.0, self.skill + 0.5 - complexity))
        chooser = random.Random(f"{self.seed} {draw}")
        if chooser.random() < self.alike:
            solved = GROUP_SIZE * (chooser.random() < chance)
        else:
            solved = sum(chooser.random() < chance for _ in range(GROUP_SIZE))
        if draw.task in self.flawed:
            return group(draw.task, 0, draw.controller_version, of=0)
        return group(draw.task, solved, draw.controller_version)


def train(
    curriculum: Curriculum,
    policy: Policy,
    steps: int,
    batch: int = 16,
    start: int = 0,
    each: Callable[[list[Draw], list[Move]], None] | None = None,
) -> int:
    """A synchronous loop that plans one batch ahead, as the trainer does. Returns the position after the last step."""
    pending = curriculum.plan(start, batch)
    for step in range(1, steps + 1):
        draws, pending = pending, curriculum.plan(start + step * batch, batch)
        moves = curriculum.observe([policy.answer(draw) for draw in draws])
        if each:
            each(draws, moves)
    return start + (steps + 1) * batch
