from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import reasoning_gym
from reasoning_gym.factory import DATASETS

from rg_env.scoring import Scorer
from rg_env.tasks.upstream import UnusableItemError
from rg_env.tasks.upstream.patched_dataset import UpstreamDataset
from tests.scoring import guest_tasks

# Importing the module has registered them. Other tests in this process count the tasks of Reasoning Gym.
GUESTS = {name: DATASETS.pop(name) for name in ("acting", "second", "third", "sharing", "points", "waiting")}
assert guest_tasks.SharingDataset.rg_env_fresh is False


@pytest.fixture(scope="package")
def scorer() -> Iterator[Scorer]:
    """Two workers and a patience that no honest answer exhausts."""
    with Scorer(workers=2, timeout=30.0) as shared:
        yield shared


def _draw(task: str) -> Iterator[dict[str, Any]]:
    dataset = UpstreamDataset(task, {})
    for seed in itertools.count():
        with suppress(UnusableItemError):
            yield dataset.make(seed)


@pytest.fixture(scope="package")
def item() -> Callable[..., dict[str, Any]]:
    """An item of a task: `item("chain_sum", seed=3, **options)`."""

    def make(task: str, seed: int = 3, **options: Any) -> dict[str, Any]:
        # acre draws from all its categories only when it makes several items
        made: dict[str, Any] = reasoning_gym.create_dataset(task, seed=seed, size=5, **options)[0]
        return made

    return make


@pytest.fixture
def guests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tasks of `guest_tasks`; no setting names their module."""
    for name, guest in GUESTS.items():
        monkeypatch.setitem(DATASETS, name, guest)


def guest_entry(task: str = "acting") -> dict[str, Any]:
    return {"question": "2 + 2 =", "answer": "4", "metadata": {"source_dataset": task}}


@pytest.fixture(scope="session")
def cured_items() -> Callable[[str, int], list[dict[str, Any]]]:
    """The first items of a task as rg_env makes them. Each is made once, because some take seconds."""
    streams: dict[str, Iterator[dict[str, Any]]] = {}
    made: dict[str, list[dict[str, Any]]] = {}

    def make(task: str, count: int) -> list[dict[str, Any]]:
        entries, stream = made.setdefault(task, []), streams.setdefault(task, _draw(task))
        entries += itertools.islice(stream, max(0, count - len(entries)))
        return copy.deepcopy(entries[:count])

    return make
