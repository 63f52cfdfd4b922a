"""The planner: draws the rows of batches from what the policy has solved so far.

Invariant: a plan is a pure function of (mix, scales, settings, seed, position, state), and the state is a pure function
of the observations. Without a curriculum, row i is the pure draw of row i of the dataset; with one, only its complexity
differs. A group moves a level only if it was drawn after the level's last move, so groups that arrive late from an
older policy have no effect.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from rg_env.choices import Split
from rg_env.config import PREFIX, RGDumpConfig
from rg_env.curriculum.rules import RECENT, START, Move, interval, next_level
from rg_env.curriculum.sampling import stratified_draws
from rg_env.curriculum.solve_rate import GroupFacts, Tally, tally
from rg_env.errors import ConfigError, need
from rg_env.tasks.draw import Draw, weighted_draw
from rg_env.tasks.items import hash64
from rg_env.tasks.mix import TaskMix


class HasLevels(Protocol):
    """A task's scale of difficulty: `rg_env.tasks.levels.Scale`."""

    def level(self, complexity: float) -> Mapping[str, int]: ...


@dataclass(slots=True)
class TaskState:
    """What is remembered about a task.

    Attributes:
        complexity: at which its next items are drawn; used by the curriculum only.
        since: version of the controller at the last move; earlier groups do not count.
        groups: the last `RECENT` groups, oldest first.
    """

    complexity: float = START
    since: int = 0
    groups: list[Tally] = field(default_factory=list)


class Planner:
    """Draws rows and observes their groups.

    Args:
        mix: the tasks and their weights.
        scales: for each task with levels, its scale.
        settings: of difficulty and sampling.
        seed: the dataset's.

    Raises:
        ConfigError: settings that exclude each other, or a curriculum without a task that has levels.
    """

    def __init__(self, mix: TaskMix, scales: Mapping[str, HasLevels], settings: RGDumpConfig, seed: int) -> None:
        mode, sampling = settings.complexity_mode, settings.sampling
        if mode is not None and not scales:
            raise ConfigError(
                f"{PREFIX}.complexity_mode={mode}: no task of the mix has levels; leave it out, or add tasks with "
                "levels (`rg-env tasks --levels`)"
            )
        if settings.items is not None:
            fixed = "must be {}: with `items`, the same rows are repeated in every pass"
            need(mode != "curriculum", f"{PREFIX}.complexity_mode", mode, fixed.format("random or null"))
            need(sampling == "weighted", f"{PREFIX}.sampling", sampling, fixed.format("weighted"))
        self._mix, self._scales, self._settings, self._seed = mix, scales, settings, seed
        self._shares = {task.name: mix.share(task) for task in mix.tasks}
        self._states = {task: TaskState() for task in self._shares}
        self._randomized: Mapping[str, HasLevels] = scales if mode == "random" else {}
        self._moves_levels = mode == "curriculum"
        self.version = 0
        """Number of observed batches; 0 without a curriculum."""

    # -- drawing

    def plan(self, position: int, count: int) -> list[Draw]:
        """The draws of a batch.

        Args:
            position: number of rows of the run that were planned before.
            count: rows of the batch.
        """
        if self._settings.sampling == "weighted":
            draws = [self._weighted(row) for row in range(position, position + count)]
        else:
            draws = stratified_draws(self._shares, self._randomized, self._seed, Split.TRAIN, position, count)
        return [self._at_level(draw) for draw in draws]

    def complexities(self) -> dict[str, float]:
        """The complexity of each task that a curriculum moves."""
        return {task: self._states[task].complexity for task in self._scales} if self._moves_levels else {}

    def _weighted(self, row: int) -> Draw:
        if self._settings.items is not None:
            row = _reshuffled(row, self._settings.items, self._seed)
        return weighted_draw(self._mix, self._randomized, self._seed, Split.TRAIN, row)

    def _at_level(self, draw: Draw) -> Draw:
        moved = self._moves_levels and draw.task in self._scales
        complexity = self._states[draw.task].complexity if moved else draw.complexity
        return replace(draw, complexity=complexity, controller_version=self.version)

    # -- observing

    def observe(self, groups: Iterable[GroupFacts]) -> list[Move]:
        """Take note of the groups of a training batch, in the order in which they are given.

        Returns:
            the moves of levels, in the order of the tasks.
        """
        if not self._moves_levels:
            return []
        known = [group for group in groups if group.task in self._states]
        if not known:
            return []
        self.version += 1
        for group in known:
            state = self._states[group.task]
            if group.controller_version >= state.since:
                state.groups = [*state.groups, tally(group, self._settings.solved_at)][-RECENT:]
        observed = {group.task for group in known}
        moves = (self._move(task, scale) for task, scale in self._scales.items() if task in observed)
        return [move for move in moves if move is not None]

    def _move(self, task: str, scale: HasLevels) -> Move | None:
        state = self._states[task]
        before = state.complexity
        decision = interval(state.groups, self._settings.curriculum_target_accuracy)
        after = next_level(before, decision.change, scale.level) if decision else before
        if decision is None or after == before:
            return None
        state.complexity, state.groups, state.since = after, [], self.version
        return Move(task, before, after, decision.evidence, self.version)

    # -- saving

    def state_dict(self) -> dict[str, Any]:
        """The state as plain data that JSON can hold."""
        tasks = {
            task: {"complexity": state.complexity, "since": state.since, "groups": [list(one) for one in state.groups]}
            for task, state in self._states.items()
        }
        return {"version": self.version, "tasks": tasks}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`. Tasks that are new in the mix start anew; those no longer in it are ignored."""
        self.version = state["version"]
        for task in self._states.keys() & state["tasks"].keys():
            saved = state["tasks"][task]
            groups = [Tally(*group) for group in saved["groups"]]
            self._states[task] = TaskState(saved["complexity"], saved["since"], groups)


def _reshuffled(row: int, items: int, seed: int) -> int:
    """The row of the first pass over a finite set that is repeated at `row`. The first pass is in order."""
    number, place = divmod(row, items)
    if number == 0:
        return place
    return _order(seed, number, items)[place]


@functools.lru_cache(maxsize=2)  # a batch may hold the end of a pass and the beginning of the next
def _order(seed: int, number: int, items: int) -> list[int]:
    return sorted(range(items), key=lambda row: hash64("pass", seed, number, row))
