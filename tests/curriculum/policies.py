"""Scripted policies: a probability of success as a function of the complexity, and what goes wrong besides."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from rg_env.config import RGDumpConfig
from rg_env.curriculum import Controller, GroupFacts, Move, RolloutFacts
from rg_env.dataset import ReasoningGymDataset
from rg_env.tasks.draw import Draw

GOOD = {"well_formed": True, "scorer_ok": True, "truncated": False}
GROUP_SIZE = 8


def facts(solved: int, of: int = GROUP_SIZE, **changes: bool) -> list[RolloutFacts]:
    """`of` rollouts, of which `solved` have base score 1 and the others 0."""
    return [RolloutFacts(base_score=float(number < solved), **{**GOOD, **changes}) for number in range(of)]


def group(task: str, solved: int, version: int = 0, of: int = GROUP_SIZE, **changes: bool) -> GroupFacts:
    return GroupFacts(task, None, version, facts(solved, of, **changes))


class Curriculum(Controller):
    """A controller and the draws that it gives levels to, as the loader does."""

    def __init__(self, tasks: object, seed: int = 0, stratify: int | None = None) -> None:
        settings = RGDumpConfig(complexity_mode="curriculum")
        self.rows = ReasoningGymDataset(tasks, seed=seed, complexity_mode="curriculum", stratify=stratify)
        super().__init__(self.rows.scales, settings)

    def plan(self, position: int, count: int) -> list[Draw]:
        return [self.at_level(self.rows.train_draw(row)) for row in range(position, position + count)]


@dataclass
class Policy:
    """Solves a question with a probability that falls linearly with its complexity, from 1 at `skill` − 1/2 to 0 at
    `skill` + 1/2. Whole groups agree with probability `alike`.

    Attributes:
        flaws: for some tasks, what every rollout has wrong, as changes of `RolloutFacts`.
    """

    skill: float
    alike: float = 0.3
    seed: int = 0
    flaws: dict[str, dict[str, bool]] = field(default_factory=dict)

    def answer(self, draw: Draw) -> GroupFacts:
        complexity = 0.0 if draw.complexity is None else draw.complexity
        chance = min(1.0, max(0.0, self.skill + 0.5 - complexity))
        chooser = random.Random(f"{self.seed} {draw}")
        if chooser.random() < self.alike:
            solved = GROUP_SIZE * (chooser.random() < chance)
        else:
            solved = sum(chooser.random() < chance for _ in range(GROUP_SIZE))
        flaws = self.flaws.get(draw.task, {})
        scored = solved if flaws.get("well_formed", True) and flaws.get("scorer_ok", True) else 0
        return GroupFacts(draw.task, draw.complexity, draw.controller_version, facts(scored, **flaws))


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
