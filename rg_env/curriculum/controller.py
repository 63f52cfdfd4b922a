"""The controller of a curriculum: the complexity of each task, moved by what the policy has solved so far.

Invariant: the state is a pure function of the observations, and a draw gets its complexity from the state alone. A
group moves a level only if it was drawn after the level's last move, so groups that arrive late from an older policy
have no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rg_env.config import PREFIX, RGDumpConfig
from rg_env.curriculum.rules import RECENT, START, Move, interval, next_level
from rg_env.curriculum.solve_rate import ObservedGroup, Tally
from rg_env.errors import ConfigError, need
from rg_env.tasks.draw import Draw
from rg_env.tasks.levels import Scale


def check_difficulty(settings: RGDumpConfig, scales: Mapping[str, Scale]) -> None:
    """Check the settings of difficulty and sampling.

    Args:
        scales: the scale of each task of the mix that has levels.

    Raises:
        ConfigError: settings that exclude each other, or a complexity mode without a task that has levels.
    """
    mode = settings.complexity_mode
    if mode is not None and not scales:
        raise ConfigError(
            f"{PREFIX}.complexity_mode={mode}: no task of the mix has levels; leave it out, or add tasks with "
            "levels (`rg-env tasks --levels`)"
        )
    if settings.items is not None:
        fixed = "must be {}: with `items`, the same rows are repeated in every pass"
        need(mode != "curriculum", f"{PREFIX}.complexity_mode", mode, fixed.format("random or null"))
        need(settings.sampling == "weighted", f"{PREFIX}.sampling", settings.sampling, fixed.format("weighted"))


@dataclass(slots=True)
class TaskState:
    """What is remembered about a task.

    Attributes:
        complexity: at which its next items are drawn.
        since: version of the controller at the last move; earlier groups do not count.
        groups: the last `RECENT` groups, oldest first.
    """

    complexity: float = START
    since: int = 0
    groups: list[Tally] = field(default_factory=list)


class Controller:
    """Sets the complexity of draws and observes their groups.

    Args:
        scales: the scale of each task that has levels; other tasks keep their default options.
        target: the solve rate toward which levels are moved.
    """

    def __init__(self, scales: Mapping[str, Scale], target: float) -> None:
        self._scales, self._target = scales, target
        self._states = {task: TaskState() for task in scales}
        self.version = 0
        """Number of observed batches."""

    def at_level(self, draw: Draw) -> Draw:
        """A draw with the current complexity of its task."""
        state = self._states.get(draw.task)
        complexity = state.complexity if state else draw.complexity
        return replace(draw, complexity=complexity, controller_version=self.version)

    def complexities(self) -> dict[str, float]:
        """The complexity of each task that has levels."""
        return {task: state.complexity for task, state in self._states.items()}

    def observe(self, groups: Iterable[ObservedGroup]) -> list[Move]:
        """Take note of the groups of a training batch, in the order in which they are given.

        Returns:
            the moves of levels, in the order of the tasks.
        """
        groups = list(groups)
        self.version += bool(groups)
        observed = set()
        for group in groups:
            state = self._states.get(group.task)
            if state is None:
                continue
            observed.add(group.task)
            if group.controller_version >= state.since:
                state.groups = [*state.groups, group.tally][-RECENT:]
        moves = (self._move(task) for task in self._states if task in observed)
        return [move for move in moves if move is not None]

    def _move(self, task: str) -> Move | None:
        state = self._states[task]
        before = state.complexity
        change, evidence = interval(state.groups, self._target)
        after = next_level(before, change, self._scales[task].level)
        if evidence is None or after == before:
            return None
        state.complexity, state.groups, state.since = after, [], self.version
        return Move(task, before, after, evidence)

    def state_dict(self) -> dict[str, Any]:
        """The state as plain data that JSON can hold."""
        tasks = {
            task: {"complexity": state.complexity, "since": state.since, "groups": [list(one) for one in state.groups]}
            for task, state in self._states.items()
        }
        return {"version": self.version, "tasks": tasks}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`. Tasks that are new in the mix start anew; those no longer in it are ignored."""
        found = {
            task: TaskState(saved["complexity"], saved["since"], [Tally(*group) for group in saved["groups"]])
            for task, saved in state["tasks"].items()
            if task in self._states
        }
        self.version, self._states = state["version"], self._states | found
