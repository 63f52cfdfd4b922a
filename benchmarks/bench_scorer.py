"""Time of a score through the pool compared with the same two `score_answer` calls in this process, without isolation.

Run: `python benchmarks/bench_scorer.py`. The difference is the cost of isolation; the ratio is pool time over direct
time. Answers to tasks marked * may call functions, so each gets a new process.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import reasoning_gym

from rg_env.scoring import Scorer
from rg_env.scoring.guard import CALLING_TASKS

TASKS = ("chain_sum", "spell_backward", "sudoku", "arc_agi", "spiral_matrix", "countdown", "intermediate_integration")


def microseconds(call: Callable[[], object], seconds: float = 1.0) -> tuple[float, float]:
    """Median and 99th percentile of one call."""
    times = []
    end = perf_counter() + seconds
    while not times or perf_counter() < end:
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    times.sort()
    return times[len(times) // 2] * 1e6, times[len(times) * 99 // 100] * 1e6


def main() -> None:
    start = perf_counter()
    with Scorer(workers=2, timeout=30.0) as scorer:
        entry = reasoning_gym.create_dataset("chain_sum", seed=1, size=1)[0]
        scorer.score(entry, entry["answer"])
        print(f"start to first score: {perf_counter() - start:.2f} s\n")
        print(
            f"{'task':26} {'pool p50':>10} {'pool p99':>10} {'direct p50':>11} {'ratio':>8} {'difference':>11}   (µs)"
        )
        for task in TASKS:
            dataset = reasoning_gym.create_dataset(task, seed=1, size=1)
            entry = dataset[0]
            answer = str(entry["answer"])

            def direct(dataset=dataset, entry=entry, answer=answer) -> None:  # type: ignore[no-untyped-def]
                for text in (answer, f"<answer>{answer}</answer>"):
                    dataset.score_answer(text, copy.deepcopy(entry))

            scorer.score(entry, answer)
            pool, worst = microseconds(lambda entry=entry, answer=answer: scorer.score(entry, answer))  # type: ignore[misc]
            alone, _ = microseconds(direct)
            name = task + ("*" if task in CALLING_TASKS else "")
            print(f"{name:26} {pool:10.0f} {worst:10.0f} {alone:11.0f} {pool / alone:7.1f}x {pool - alone:11.0f}")

        entry = reasoning_gym.create_dataset("chain_sum", seed=1, size=1)[0]
        jobs = 5_000
        with ThreadPoolExecutor(32) as threads:
            start = perf_counter()
            list(threads.map(lambda _: scorer.score(entry, entry["answer"]), range(jobs)))
            print(f"\n32 threads, chain_sum: {(perf_counter() - start) / jobs * 1e6:.0f} µs per score")


if __name__ == "__main__":
    main()
