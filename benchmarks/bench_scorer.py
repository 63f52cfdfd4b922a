"""Scoring right answers, bare and tagged: `Scorer` with its guard and isolated processes, and the same two calls of
`score_answer` in this process, which an answer can hang, crash or manipulate. Different items of a task in turn. Then
`guarded`, each call in a process of its own, beside a warmed process that only forks, sandboxes, calls and exits.
"""

from __future__ import annotations

import copy
import importlib
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import reasoning_gym

from benchmarks import guest_task
from benchmarks.comparison import Comparison, Goal, Measure, median_of_calls, timed
from rg_env.runner import Guarded, guarded
from rg_env.scoring import Scorer

ITEMS = 40
THREADS = 32
"""As many as SkyRL has by default (`max_env_workers`)."""
BATCH = 80
PAUSE = 0.05
RIVAL = "`score_answer` in process"
SIMPLE, INTEGRAL = Goal(cost=0.4), Goal(ratio=1.6)
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


FRESH: dict[str, tuple[str, list[Any]]] = {
    "a plain function": ("math:factorial", [20]),
    "math-verify": ("examples.math_reward:equal", ["1/2", "0.5"]),
}
"""Functions in `guarded`, with arguments."""


NOTES = (
    "A plain function cannot be ten times as fast as a new process: Python starts in seven times the time of a bare "
    "fork with its sandbox. What takes long in a fork are page faults, its end, and the copy of the page tables, which "
    "all grow with what is loaded; so the server does not load the caller's side (asyncio was a third of its memory).",
    "From 32 threads the two cores are full, and the caller's own work counts: a fork is asked for, its start and its "
    "reply are waited for in an event loop, its deadline is watched, and the thread that asked is woken.",
)


class BareFork(AbstractContextManager["BareFork"]):
    """`benchmarks.bare_fork` for a function. One call at a time."""

    def __init__(self, path: str, arguments: Sequence[Any]) -> None:
        self._line = f"{json.dumps(arguments)}\n"
        command = [sys.executable, "-m", "benchmarks.bare_fork", path, json.dumps(arguments)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.call()

    def call(self) -> None:
        """Have the function called once."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(self._line)
        self._process.stdin.flush()
        float(self._process.stdout.readline())

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


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
    yield from _fresh_comparisons(seconds, 64 if quick else 512)
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
                    goal=Goal(ratio=14.0 if size == 10 * BATCH else None),
                )
            for name, size in (("countdown", 1024), ("simple_integration", 256), ("intermediate_integration", 128)):
                task, size = Task(scorer, name), size // 8 if quick else size
                ours, rival = (
                    _batch(task.isolated, task.entries, size, threads),
                    _batch(task.in_process, task.entries, size),
                )
                yield Comparison(f"{size:,} `{name}` answers, {THREADS} threads", "ms", ours, rival, RIVAL)


def _fresh_comparisons(seconds: float, calls: int) -> Iterator[Comparison]:
    """Fresh processes beside a bare fork of the same warmed process, and beside a new process for each call."""
    for name, (path, arguments) in FRESH.items():
        example = [(tuple(arguments), function_of(path)(*arguments))]
        with guarded(path, workers=2, timeout=30.0, examples=example) as function:

            def call(_: object = None, function: Guarded = function, arguments: Sequence[Any] = arguments) -> None:
                assert function.score(*arguments).value is not None

            yield from _comparisons_of(f"`guarded`, {name}", path, arguments, call, seconds, calls)
    with Scorer(workers=2, timeout=30.0) as scorer:

        def score(_: object = None) -> None:
            assert scorer.score_answer(guest_task.ENTRY, "4").raw == 1.0

        path = f"{guest_task.__name__}:score"
        yield from _comparisons_of("a user's task", path, ["4"], score, seconds, calls)


def _comparisons_of(
    name: str, path: str, arguments: Sequence[Any], call: Callable[..., None], seconds: float, calls: int
) -> Iterator[Comparison]:
    with (
        BareFork(path, arguments) as first,
        BareFork(path, arguments) as second,
        ThreadPoolExecutor(THREADS) as threads,
    ):
        call()
        ours = median_of_calls(call, "ms", seconds)
        bare = median_of_calls(first.call, "ms", seconds)
        new = timed(lambda: subprocess.run(_program(path, arguments), check=True), "ms")
        many = timed(lambda: list(threads.map(call, range(calls))), "ms", per=calls)
        pair = timed(lambda: _in_pairs(first, second, calls), "ms", per=calls)
        what = f"{name}, one after another"
        yield Comparison(what, "ms", ours, bare, "a bare fork", goal=Goal(ratio=1.3))
        yield Comparison(f"{what}, beside new processes", "ms", ours, new, "a new process", goal=Goal(ratio=0.1))
        what = f"{name}, {THREADS} threads"
        yield Comparison(what, "ms", many, pair, "two bare forks at a time", goal=Goal(ratio=1.3))


def function_of(path: str) -> Callable[..., Any]:
    """The function that `module:function` names."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


def _program(path: str, arguments: Sequence[Any]) -> list[str]:
    module, _, name = path.partition(":")
    return [sys.executable, "-c", f"import {module}; float({module}.{name}(*{arguments!r}))"]


def _in_pairs(first: BareFork, second: BareFork, calls: int) -> None:
    threads = [Thread(target=_repeat, args=(each, calls // 2)) for each in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _repeat(rival: BareFork, calls: int) -> None:
    for _ in range(calls):
        rival.call()


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
