"""Looks for draws that take long: every task with its default options and at c = 0, .25, .5, .75 and 1.

    python -m scripts.sweep_draws --state sweep.json --cpu-seconds 40

Draws in rounds, so that a sweep that is ended early has tried every task; in each round, those with the slowest draws
come first. A state file continues it. A draw over 10 CPU seconds is printed when it is seen; the table at the end has
the slowest draw of each task.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rg_env.tasks import hash64, task_names
from rg_env.tasks.levels import scale_of
from rg_env.tasks.upstream.dataset import UpstreamDataset

COMPLEXITIES = (None, 0.0, 0.25, 0.5, 0.75, 1.0)
LONG = 10.0
"""CPU seconds."""


def cases() -> Iterator[tuple[str, float | None, dict[str, Any]]]:
    """Task, complexity (None: default options) and options."""
    for task in task_names():
        scale = scale_of(task, {})
        for complexity in COMPLEXITIES:
            if complexity is None:
                yield task, None, {}
            elif scale is not None:
                yield task, complexity, scale.options(complexity)


def sweep(case: dict[str, Any], task: str, complexity: float | None, options: dict[str, Any], until: float) -> None:
    """Draw until the case has `until` CPU seconds or all of its draws."""
    dataset = UpstreamDataset(task, options)
    while case["draws"] < case["wanted"] and case["seconds"] < until:
        seed = hash64("sweep", task, complexity, case["draws"]) >> 32
        start = time.process_time()
        try:
            dataset.make(seed)
        except Exception as error:
            name = type(error).__name__
            case["failed"][name] = case["failed"].get(name, 0) + 1
        seconds = time.process_time() - start
        case["draws"] += 1
        case["seconds"] += seconds
        if seconds > case["slowest"]:
            case["slowest"], case["seed"] = seconds, seed
        if seconds > LONG:
            print(
                f"{task} at c={complexity}: seed {seed} took {seconds:.1f} CPU seconds, options {options}", flush=True
            )


def main() -> None:
    """Sweep, and print the slowest draw of each task."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("tasks", nargs="*", help="all by default")
    parser.add_argument("--draws", type=int, default=2000, help="of each task at each level")
    parser.add_argument("--cpu-seconds", type=float, default=40, help="at most, for each task at each level")
    parser.add_argument("--state", type=Path, help="a file to continue from")
    arguments = parser.parse_args()
    state: dict[str, Any] = {}
    if arguments.state and arguments.state.exists():
        state = json.loads(arguments.state.read_text())
    chosen = [case for case in cases() if not arguments.tasks or case[0] in arguments.tasks]
    for task, complexity, _ in chosen:
        empty = {"draws": 0, "seconds": 0.0, "slowest": 0.0, "seed": 0, "failed": {}}
        state.setdefault(f"{task} {complexity}", empty)["wanted"] = arguments.draws
    for share in (1 / 40, 1 / 10, 1 / 4, 1):
        for task, complexity, options in sorted(chosen, key=lambda case: -state[f"{case[0]} {case[1]}"]["slowest"]):
            sweep(state[f"{task} {complexity}"], task, complexity, options, arguments.cpu_seconds * share)
            if arguments.state:
                arguments.state.write_text(json.dumps(state))
    print("task: slowest draw in CPU seconds (c, seed), draws at each level")
    for task in dict.fromkeys(case[0] for case in chosen):
        found = {key.split()[1]: case for key, case in state.items() if key.split()[0] == task}
        level = max(found, key=lambda level: found[level]["slowest"])
        slowest, seed = found[level]["slowest"], found[level]["seed"]
        print(f"{task}: {slowest:.2f} ({level}, {seed}), {' '.join(str(case['draws']) for case in found.values())}")


if __name__ == "__main__":
    main()
