"""CPU time of scoring an answer, by kind of task: the figures of docs/scale.md.

Run: `python benchmarks/table_scorer.py`. For every task of the default mix, scores right and wrong answers to some
items, each in a response of about 1 000 tokens, with one worker. CPU time depends less on what else the machine does
than wall time. *here* is the process that parses and asks, *worker* the scorer's processes.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import clock_gettime, process_time

import polars as pl

from rg_env.dataset import ReasoningGymDataset
from rg_env.scoring import Scorer
from rg_env.scoring.guard import EVALUATING_TASKS
from rg_env.tasks import Item, TaskMix

ITEMS = 6
THOUGHT = "Let us count them one by one and then carry the one. " * 80


def kind_of(task: str) -> str:
    if task.endswith("_integration"):
        return "symbolic integration"
    return "evaluates the answer" if task in EVALUATING_TASKS else "all others"


def worker_seconds(scorer: Scorer) -> float:
    """CPU time of the fork server, of its workers that have ended, and of those that are idle."""
    workers = scorer._pool._workers  # type: ignore[union-attr]
    server = workers._server
    assert server is not None
    ticks = Path(f"/proc/{server._process.pid}/stat").read_text().rpartition(")")[2].split()[11:15]
    ended = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return ended + sum(clock_gettime(~worker.pid << 3 | 2) for worker in workers._idle)


def measure(scorer: Scorer, task: str) -> dict[str, object]:
    rows = ReasoningGymDataset([task], size=ITEMS, seed=1)
    items = [Item.from_extra_info(rows.row(index)["extra_info"]) for index in range(ITEMS)]
    answers = [str(item.entry["answer"]) for item in items]
    pairs = [(item, answer) for shift in (0, 1) for item, answer in zip(items, answers[shift:] + answers, strict=False)]
    scorer.score(items[0].entry, answers[0], items[0].config)
    here, there = process_time(), worker_seconds(scorer)
    for item, answer in pairs:
        scorer.judge(item.entry, f"<think>{THOUGHT}</think>\n<answer>{answer}</answer>", item.config)
    here, there = process_time() - here, worker_seconds(scorer) - there
    ms = 1000 / len(pairs)
    return {"task": task, "kind": kind_of(task), "here": here * ms, "worker": there * ms}


def main() -> None:
    names = [task.name for task in TaskMix.parse(None).tasks]
    names += [name for name in ("intermediate_integration", "simple_integration") if name not in names]
    with Scorer(workers=1, timeout=30) as scorer:
        table = pl.DataFrame([measure(scorer, name) for name in names])
    worker = pl.col("worker")
    kinds = table.group_by("kind").agg(
        pl.len().alias("tasks"),
        pl.col("here").mean(),
        worker.median().alias("worker, median task"),
        worker.mean().alias("worker, mean"),
        worker.max().alias("worker, slowest task"),
        pl.col("task").sort_by("worker").last().alias("slowest"),
    )
    with pl.Config(tbl_cols=-1, tbl_rows=-1, tbl_width_chars=160, float_precision=2):
        print("milliseconds of CPU time per answer\n", kinds.sort("worker, mean"))
        print(table.sort("worker", descending=True).head(12))
        print(table.select(pl.col("here", "worker").mean()))
    print("load average:", *os.getloadavg())


if __name__ == "__main__":
    main()
