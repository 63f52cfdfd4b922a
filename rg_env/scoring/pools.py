"""Which processes score which task: how far the code of a task is trusted decides.

Invariant: all pools share their places, so that together they score no more than `workers` answers at once.
"""

from __future__ import annotations

import asyncio
import pickle
import random
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from rg_env.configuration.modules import modules_of_tasks
from rg_env.runner.caller_pool import ScorerPool
from rg_env.tasks.soundness import AUDITED_TASKS

_MAKE_SCORER = "rg_env.scoring.upstream:make_scorer"
"""What makes Reasoning Gym's scorers, as a name: only the runner's processes import it."""
_UPSTREAM_MODULES = ["rg_env.tasks.upstream.slim_import", "rg_env.tasks.soundness", "rg_env.scoring.upstream"]
"""Modules that it needs. It imports two of them itself, so that other targets do without."""
_MOST_PREPARED = 16
"""Processes that have set up a user's task and are kept."""


class Pools:
    """The processes that score answers to Reasoning Gym's items; all start when they are needed."""

    def __init__(self, workers: int, timeout: float) -> None:
        self._timeout = timeout
        self._places = asyncio.Semaphore(workers)
        # The modules are asked for when a server starts: a user's may be imported after this was made.
        self._audited = ScorerPool(self._places, timeout, _upstream_modules)
        # Tasks that users' modules bring evaluate what they like, so each answer gets a process of its own.
        self._guests = ScorerPool(self._places, timeout, _all_modules, fresh=True)
        # Users' tasks whose class says that they evaluate nothing share workers.
        self._unfresh_guests = ScorerPool(self._places, timeout, _all_modules)
        self._prepared: dict[bytes, ScorerPool] = {}
        """Pools with a prepared server, by target: a task with its default options."""
        self._chance = random.Random()

    async def for_target(self, task: str, target: bytes) -> ScorerPool:
        """Return the pool whose processes score this task with these options."""
        if task in AUDITED_TASKS:
            return self._audited
        if not _needs_fresh(task):
            return self._unfresh_guests
        # Options come with a request or a dump: they are set up in the sandboxed process of the answer only.
        if target != target_of(task, {}):
            return self._guests
        if target not in self._prepared:
            await self._make_room()
        # From here to the start of the job nothing else runs, so that nobody ends the pool before.
        if self.closed:
            return self._guests  # which says so
        if target not in self._prepared:
            preparation = pickle.dumps((target, []))
            pool = ScorerPool(self._places, self._timeout, _all_modules, fresh=True, preparation=preparation)
            self._prepared[target] = pool
        return self._prepared[target]

    async def _make_room(self) -> None:
        """End prepared processes until there is room for one more. Those that have jobs stay."""
        idle = [target for target, pool in self._prepared.items() if not pool.jobs]
        # Any of them: of tasks that are used in turn, the least recently used one would always be the next one needed.
        self._chance.shuffle(idle)
        for target in idle:
            if len(self._prepared) < _MOST_PREPARED:
                return
            pool = self._prepared.get(target)
            if pool is not None and not pool.jobs:  # still, although others run while one ends
                del self._prepared[target]
                await pool.shut()

    @property
    def closed(self) -> bool:
        return self._audited.closed

    def close(self) -> None:
        """End the processes. May be called more than once."""
        for pool in (self._audited, self._guests, self._unfresh_guests):
            pool.close()
        # After the first: then no job makes another.
        for pool in list(self._prepared.values()):
            pool.close()


def _upstream_modules() -> list[str]:
    return _UPSTREAM_MODULES


def _all_modules() -> list[str]:
    return [*_UPSTREAM_MODULES, *modules_of_tasks()]


def target_of(task: str, config: Mapping[str, Any]) -> bytes:
    """Name the scorer of a task with these options, as the runner's processes make it ready."""
    if config:
        return _make_target(_MAKE_SCORER, task, config)
    return _target_without_options(_MAKE_SCORER, task)


@lru_cache(maxsize=256)
def _target_without_options(maker: str, task: str) -> bytes:
    return _make_target(maker, task, {})


def _make_target(maker: str, task: str, config: Mapping[str, Any]) -> bytes:
    module, _, function = maker.partition(":")
    return pickle.dumps((module, function, task, dict(config)))


def _needs_fresh(task: str) -> bool:
    """Return whether each answer needs a process of its own: unless the task's class has `rg_env_fresh = False`."""
    # Not imported here: a user's module that registers the task has imported it.
    registry = sys.modules.get("reasoning_gym")
    if registry is None:
        return True
    dataset_class, _ = registry.factory.DATASETS.get(task, (None, None))
    return bool(getattr(dataset_class, "rg_env_fresh", True))
