"""Items and rows of the default mix, warm, and Reasoning Gym's own `dataset[i]` with the same seeds, so that both make
the same puzzles; without three tasks whose items Reasoning Gym makes in advance. A train row also pays for draws that
belong to the eval split or have no clear answer. Then datasets of any size and the fixed evaluation set.
"""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import reasoning_gym
from reasoning_gym.composite import DatasetSpec

from benchmarks.comparison import Comparison, Goal, Measure, of_command, python, timed
from rg_env.config import RGDumpConfig
from rg_env.dataset import ReasoningGymDataset
from rg_env.eval_set import EvalSet
from rg_env.tasks import TaskMix, encode_entry, split_of
from rg_env.tasks.draw import Draw
from rg_env.tasks.upstream import UnusableItemError
from rg_env.tasks.upstream.dataset import COMPUTED_AT_CREATION, UpstreamDataset

NOTES = (
    "A row cannot meet 1.1: one draw in eight belongs to the eval split and is made again, which alone is 1.14, and so "
    "is a draw whose question has no clear answer. A draw shows its split only when its question is made.",
    "What rg_env adds to a draw is 20 to 40 µs (copies of the dataset and its config, JSON, hash, messages): nothing "
    "next to the mean of 8 ms, but more than half of the cheapest tasks' items. The rest is knight_swap, whose search "
    "must visit squares in sorted order, and syllogism, survo and tsumego, whose answers are checked.",
    "`composite` leaves out acre, gsm_symbolic, list_functions and word_ladder, which cannot be built with this size.",
)
ROWS = 10_000_000
CANNOT_BE_LARGE = {*COMPUTED_AT_CREATION, "word_ladder"}
TASKS = [task.name for task in TaskMix.parse().tasks]
SIMPLE = [task for task in TASKS if task not in COMPUTED_AT_CREATION]
EVAL_TASKS = "category:algorithmic,category:arithmetic,category:algebra"
IN_A_NEW_PROCESS = f"from rg_env import ReasoningGymDataset; ReasoningGymDataset(size={ROWS})"


def comparisons(folder: Path, quick: bool) -> Iterator[Comparison]:
    tasks = SIMPLE[::8] if quick else SIMPLE
    items = Items(tasks)
    per = 1 if quick else 4
    for task in tasks:  # warm up
        items.ours(task, 0)
        items.theirs(task, 0)
    goal = Goal(ratio=1.1)
    ours, theirs = (items.mean_of(make, per) for make in (items.ours, items.theirs))
    yield Comparison(f"an item, mean over {len(tasks)} tasks", "ms", ours, theirs, "`dataset[i]`", goal=goal)
    rows = Rows(tasks, items, per)
    yield Comparison(
        f"a train row, mean over {len(tasks)} tasks", "ms", rows.ours, rows.theirs, "`dataset[i]`", goal=goal
    )
    build = timed(partial(ReasoningGymDataset, size=ROWS), "s")
    yield Comparison(
        "a dataset of 10 million rows", "s", build, timed(_composite, "s"), "`composite`", goal=Goal(cost=1)
    )
    new = _wall_of(python(IN_A_NEW_PROCESS))
    rival = _wall_of(python("from benchmarks.bench_dataset import _composite; _composite()"))
    yield Comparison("the same in a new process, with imports", "s", new, rival, "`composite`", goal=Goal(cost=1))
    config = RGDumpConfig(tasks=EVAL_TASKS.split(",")[: 1 if quick else 3], num_eval_samples_per_task=2 if quick else 5)
    with _cache_in(folder / "cache"):
        yield Comparison(
            "a fixed evaluation set, first time", "s", partial(_first_time, config), partial(_one_by_one, config),
            "one by one",
        )  # fmt: skip
        EvalSet(config).wait()
        again = timed(lambda: EvalSet(config).wait(), "s")
        yield Comparison(
            "the same, from the cache", "s", again, partial(_one_by_one, config), "one by one", goal=Goal(cost=1)
        )


class Items:
    """Makes the same items in both ways."""

    def __init__(self, tasks: Sequence[str]) -> None:
        self._tasks = tasks
        self._ours = {task: UpstreamDataset(task, {}) for task in tasks}
        self._theirs = {task: reasoning_gym.create_dataset(task, seed=0, size=1) for task in tasks}

    def ours(self, task: str, seed: int) -> None:
        """What a draw does."""
        try:
            entry = self._ours[task].make(seed)
        except UnusableItemError:
            return
        encode_entry(entry)
        split_of(task, entry["question"])

    def theirs(self, task: str, seed: int) -> None:
        dataset = self._theirs[task]
        dataset.seed = seed
        dataset[0]

    def mean_of(self, make: Callable[[str, int], None], per: int) -> Measure:
        """Mean milliseconds of an item; seeds that were not used before."""
        seeds = itertools.count(1)

        def run() -> None:
            for seed in itertools.islice(seeds, per):
                for task in self._tasks:
                    make(task, seed)

        return timed(run, "ms", per * len(self._tasks))


@dataclass
class Rows:
    """Makes rows, and their accepted puzzles alone."""

    tasks: Sequence[str]
    items: Items
    per: int

    def __post_init__(self) -> None:
        self._dataset = ReasoningGymDataset(self.tasks)
        self._indices = [itertools.count(1), itertools.count(1)]
        for task in self.tasks:  # warm up
            self._dataset.row_of(Draw(task, 0))

    def ours(self) -> float:
        indices = list(itertools.islice(self._indices[0], self.per))
        return self._mean(lambda: [self._dataset.row_of(Draw(task, i)) for i in indices for task in self.tasks])

    def theirs(self) -> float:
        seeds = [self._seed_of(task, i) for i in itertools.islice(self._indices[1], self.per) for task in self.tasks]
        return self._mean(lambda: [self.items.theirs(task, seed) for task, seed in seeds])

    def _mean(self, work: Callable[[], Any]) -> float:
        return timed(work, "ms", self.per * len(self.tasks))()

    def _seed_of(self, task: str, index: int) -> tuple[str, int]:
        """The seed of the draw that became the row."""
        seeds: list[int] = []
        make = UpstreamDataset.make

        def noting(dataset: UpstreamDataset, seed: int) -> dict[str, Any]:
            seeds.append(seed)
            return make(dataset, seed)

        with mock.patch.object(UpstreamDataset, "make", noting):
            self._dataset.row_of(Draw(task, index))
        return task, seeds[-1]


def _composite() -> Any:
    specs = [DatasetSpec(name=name, weight=1, config={}) for name in TASKS if name not in CANNOT_BE_LARGE]
    return reasoning_gym.create_dataset("composite", datasets=specs, size=ROWS, seed=42)


def _wall_of(command: list[str]) -> Measure:
    return lambda: of_command(command).wall


@contextmanager
def _cache_in(folder: Path) -> Iterator[None]:
    """User's caches are in this folder for a while."""
    with mock.patch.dict(os.environ, XDG_CACHE_HOME=str(folder)):
        yield


_seeds = itertools.count(1000)


def _first_time(config: RGDumpConfig) -> float:
    fresh = copy.copy(config)
    fresh.eval_seed = next(_seeds)  # which is not in the cache
    return timed(lambda: EvalSet(fresh).wait(), "s")()


def _one_by_one(config: RGDumpConfig) -> float:
    def make() -> None:
        samples = config.num_eval_samples_per_task
        dataset = ReasoningGymDataset.fixed_eval(config.tasks, seed=next(_seeds), samples_per_task=samples)
        for index in range(len(dataset)):
            dataset.row(index)

    return timed(make, "s")()
