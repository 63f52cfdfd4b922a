"""Scoring right answers, bare and tagged: `Scorer` with its guard and isolated processes, and the same two calls of
`score_answer` in this process, which an answer can hang, crash or manipulate. Different items of a task in turn.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import reasoning_gym

from benchmarks.comparison import Comparison, Goal, Measure, median_of_calls, timed
from rg_env.scoring import Scorer

ITEMS = 40
THREADS = 32
"""As many as SkyRL has by default (`max_env_workers`)."""
BATCH = 80
PAUSE = 0.05
RIVAL = "`score_answer` in process"
SIMPLE, INTEGRAL = Goal(cost=0.4), Goal(ratio=1.5)
ONE_BY_ONE = {
    "chain_sum": SIMPLE,
    "spell_backward": SIMPLE,
    "sudoku": SIMPLE,
    "arc_agi": SIMPLE,
    "spiral_matrix": SIMPLE,
    "countdown": Goal(),
    "puzzle24": Goal(),
    "polynomial_multiplication": Goal(),
    "simple_integration": Goal(),
    "intermediate_integration": INTEGRAL,
}


class Task:
    """Items of a task, and both ways to score their own answers."""

    def __init__(self, scorer: Scorer, name: str, size: int = ITEMS) -> None:
        self._scorer = scorer
        self._dataset = reasoning_gym.create_dataset(name, seed=1, size=size)
        self.entries = [entry for entry in self._dataset if _is_typical(name, entry)]
        scorer.score_answer(self.entries[0], str(self.entries[0]["answer"]))

    def isolated(self, entry: dict[str, Any]) -> None:
        scored = self._scorer.score_answer(entry, str(entry["answer"]))
        assert scored.score == 1.0, (entry, scored)

    def in_process(self, entry: dict[str, Any]) -> None:
        answer = str(entry["answer"])
        for form in (answer, f"<answer>{answer}</answer>"):
            self._dataset.score_answer(form, copy.deepcopy(entry))


def _is_typical(task: str, entry: dict[str, Any]) -> bool:
    """Of intermediate integrals, those whose answers contain functions; upstream has a few without a proper answer."""
    answer = str(entry["answer"])
    return task != "intermediate_integration" or ("Integral" not in answer and "(x)" in answer)


def comparisons(folder: Path, quick: bool) -> Iterator[Comparison]:
    seconds = 0.05 if quick else 0.4
    with Scorer(workers=2, timeout=30.0) as scorer:
        for name, goal in ONE_BY_ONE.items():
            task = Task(scorer, name, 10 if quick else ITEMS)
            ours, rival = (_in_turn(way, task.entries, seconds) for way in (task.isolated, task.in_process))
            yield Comparison(f"`{name}`, one after another", "ms", ours, rival, RIVAL, goal=goal)
        task = Task(scorer, "intermediate_integration", 10 if quick else ITEMS)
        ours, rival = (_with_pauses(way, task.entries) for way in (task.isolated, task.in_process))
        what = f"`intermediate_integration`, {1000 * PAUSE:.0f} ms between answers"
        yield Comparison(what, "ms", ours, rival, RIVAL)
        with ThreadPoolExecutor(THREADS) as threads:
            task = Task(scorer, "chain_sum")
            for size in (BATCH, 10 * BATCH) if quick else (BATCH, 10 * BATCH, 100 * BATCH):
                ours, rival = (
                    _batch(task.isolated, task.entries, size, threads),
                    _batch(task.in_process, task.entries, size),
                )
                yield Comparison(
                    f"{size:,} `chain_sum` answers, {THREADS} threads",
                    "ms",
                    ours,
                    rival,
                    RIVAL,
                    goal=Goal(ratio=12.0 if size == 10 * BATCH else None),
                )
            for name, size in (("countdown", 1024), ("simple_integration", 256), ("intermediate_integration", 128)):
                task, size = Task(scorer, name), size // 8 if quick else size
                ours, rival = (
                    _batch(task.isolated, task.entries, size, threads),
                    _batch(task.in_process, task.entries, size),
                )
                yield Comparison(f"{size:,} `{name}` answers, {THREADS} threads", "ms", ours, rival, RIVAL)


def _in_turn(score: Callable[[dict[str, Any]], None], entries: Sequence[dict[str, Any]], seconds: float) -> Measure:
    turns = itertools.cycle(entries)
    return median_of_calls(lambda: score(next(turns)), "ms", seconds)


def _with_pauses(score: Callable[[dict[str, Any]], None], entries: Sequence[dict[str, Any]]) -> Measure:
    """The median of ten answers, each after a pause."""
    turns = itertools.cycle(entries)

    def measure() -> float:
        costs = []
        for _ in range(10):
            sleep(PAUSE)
            costs.append(timed(lambda: score(next(turns)), "ms")())
        return sorted(costs)[len(costs) // 2]

    return measure


def _batch(
    score: Callable[[dict[str, Any]], None],
    entries: Sequence[dict[str, Any]],
    size: int,
    threads: ThreadPoolExecutor | None = None,
) -> Measure:
    """Wall time of `size` answers; in process one after another, because Python runs one thread at a time."""
    work = list(itertools.islice(itertools.cycle(entries), size))
    run = threads.map if threads else map
    return timed(lambda: list(run(score, work)), "ms")
