"""Check the answers that are stored with Reasoning Gym's items against independent solvers (`scripts/oracles`).

Run: `python -m scripts.check_oracles [--stock] [--complexity C] [--items N] [TASK ...]`. An item agrees if upstream's
scorer pays 1 for every answer that the solver finds. `--stock` takes upstream's items as they are, not those that
rg_env makes. `--complexity` takes the tasks that have levels, at one level instead of their default options.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

from rg_env.tasks.levels import samples, scale_of
from rg_env.tasks.upstream.dataset import reasoning_gym
from scripts.oracles import Solver
from scripts.oracles.solvers import SOLVERS


@dataclass
class Report:
    """How many items agree, disagree, or have no clear answer; `examples` are (question, stored answer, ours)."""

    agree: int = 0
    disagree: int = 0
    unclear: int = 0
    examples: list[tuple[str, Any, Any]] = field(default_factory=list)


def our_items(task: str, complexity: float | None = None) -> Iterator[dict[str, Any]]:
    scale = None if complexity is None else scale_of(task, {})
    options = {} if scale is None or complexity is None else scale.options(complexity)
    return (draw for draw in samples(task, options) if isinstance(draw, dict))


def stock_items(task: str) -> Iterator[dict[str, Any]]:
    return (reasoning_gym().create_dataset(task, seed=seed, size=1)[0] for seed in count())


def check(task: str, items: Iterator[dict[str, Any]], solver: Solver | None = None) -> Report:
    """Compare the items with the task's solver."""
    scorer = reasoning_gym().create_dataset(task, seed=0, size=1)
    report = Report()
    for entry in items:
        found = (solver or SOLVERS[task])(entry["question"], entry["metadata"], entry["answer"])
        answers = [found] if isinstance(found, str) else found
        if answers is None:
            report.unclear += 1
            report.examples.append((entry["question"], entry["answer"], None))
        elif answers and all(scorer.score_answer(a, copy.deepcopy(entry)) >= 1 - 1e-9 for a in answers):
            report.agree += 1
        else:
            report.disagree += 1
            report.examples.insert(0, (entry["question"], entry["answer"], answers))
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--complexity", type=float)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--examples", type=int, default=0)
    arguments = parser.parse_args()
    print("| task | agree | disagree | unclear |\n|---|--:|--:|--:|")
    for task in arguments.tasks or sorted(SOLVERS):
        if arguments.complexity is not None and scale_of(task, {}) is None:
            continue
        made = stock_items(task) if arguments.stock else our_items(task, arguments.complexity)
        report = check(task, islice(made, arguments.items))
        print(f"| `{task}` | {report.agree} | {report.disagree} | {report.unclear} |", flush=True)
        for question, stored, ours in report.examples[: arguments.examples]:
            print(f"    {question[-700:]}\n    stored {stored!r}\n    ours {ours!r}")


if __name__ == "__main__":
    main()
