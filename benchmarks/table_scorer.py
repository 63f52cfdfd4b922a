"""Cost of scoring an answer, by kind of task: the figures of docs/scale.md.

Run: `python -m benchmarks.table_scorer`. For every task of the default mix, scores right and wrong
answers to some items, each in a response of about 1,000 tokens. CPU time depends less on what else the machine does
than wall time. *here* is the process that parses and asks, *worker* the scorer's processes.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from time import clock_gettime, perf_counter, process_time

import polars as pl

from rg_env.dataset import ReasoningGymDataset
from rg_env.scoring import Scorer
from rg_env.scoring.guard import EVALUATING_TASKS
from rg_env.tasks import Item, TaskMix

ITEMS = 6
THREADS = 32
SECONDS = 1.0
"""How long rates are measured, at least."""
THOUGHT = "Let us count them one by one and then carry the one. " * 80
Pair = tuple[Item, str]


def kind_of(task: str) -> str:
    if task not in EVALUATING_TASKS:
        return "all others"
    if task.startswith("intermediate"):
        return "integrals with functions"
    return "literals" if task in ("binary_matrix", "n_queens", "spiral_matrix") else "arithmetic"


def worker_seconds(scorer: Scorer) -> float:
    """CPU time of the idle workers."""
    return sum(clock_gettime(~worker.pid << 3 | 2) for worker in scorer._pool._idle)


def pairs_of(task: str) -> list[Pair]:
    """Items of a task, each with its own answer and with that of the next item."""
    rows = ReasoningGymDataset([task], size=ITEMS, seed=1)
    items = [Item.from_extra_info(rows.row(index)["extra_info"]) for index in range(ITEMS)]
    answers = [str(item.entry["answer"]) for item in items]
    return [*zip(items, answers, strict=True), *zip(items, answers[1:] + answers[:1], strict=True)]


def judge(scorer: Scorer, pair: Pair) -> None:
    item, answer = pair
    scorer.judge(item.entry, f"<think>{THOUGHT}</think>\n<answer>{answer}</answer>", item.config)


def cpu_time(scorer: Scorer, task: str, pairs: Sequence[Pair]) -> dict[str, object]:
    judge(scorer, pairs[0])
    here, there = process_time(), worker_seconds(scorer)
    for pair in pairs:
        judge(scorer, pair)
    here, there = process_time() - here, worker_seconds(scorer) - there
    ms = 1000 / len(pairs)
    return {"task": task, "kind": kind_of(task), "here": here * ms, "worker": there * ms}


def rate(workers: int, pairs: Sequence[Pair]) -> float:
    """Answers per second, of all tasks of a kind in turn."""
    with Scorer(workers=workers, timeout=30) as scorer, ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(lambda pair: judge(scorer, pair), pairs))
        done, start = 0, perf_counter()
        while perf_counter() < start + SECONDS:
            done += len(list(threads.map(lambda pair: judge(scorer, pair), pairs)))
        return done / (perf_counter() - start)


def main() -> None:
    names = [task.name for task in TaskMix.parse(None).tasks]
    pairs = {name: pairs_of(name) for name in names}
    with Scorer(workers=1, timeout=30) as scorer:
        table = pl.DataFrame([cpu_time(scorer, name, found) for name, found in pairs.items()])
    by_kind: dict[str, list[Pair]] = defaultdict(list)
    for name, found in pairs.items():
        by_kind[kind_of(name)] += found
    rates = [{"kind": kind, "1 worker": rate(1, found), "2 workers": rate(2, found)} for kind, found in by_kind.items()]
    worker = pl.col("worker")
    kinds = table.group_by("kind").agg(
        pl.len().alias("tasks"),
        pl.col("here").mean(),
        worker.mean().alias("worker, mean"),
        worker.max().alias("worker, slowest task"),
        pl.col("task").sort_by("worker").last().alias("slowest"),
    )
    with pl.Config(tbl_cols=-1, tbl_rows=-1, tbl_width_chars=160, float_precision=2):
        print("milliseconds of CPU time per answer; answers per second")
        print(kinds.join(pl.DataFrame(rates), on="kind").sort("worker, mean"))
        print(table.sort("worker", descending=True).head(12))
        print(table.select(pl.col("here", "worker").mean()))
    print("load average:", *os.getloadavg())


if __name__ == "__main__":
    main()
