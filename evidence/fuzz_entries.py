"""Measure what hostile entries cost in the process that asks for a score.

Run: `python -m evidence.fuzz_entries [TASK ...]`. Of one entry of every task, each leaf is replaced, repeated and
enlarged to 64 kB, one at a time; then all that the caller's side does with an entry is done and its CPU seconds are
measured: the bounds, the corrected copy, cheap answers, the guard, and pickling for the worker. Lists of equal parts
count as one place: their first and last leaves.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import pickle
import signal
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from rg_env.scoring import guard
from rg_env.scoring.base_score import CHEAP, cheap_answers
from rg_env.scoring.expressions import Refusal
from rg_env.tasks import hash64, task_names
from rg_env.tasks.levels import base_options
from rg_env.tasks.upstream.oracles import corrected
from rg_env.tasks.upstream.patched_dataset import UpstreamDataset

SIZE = 64_000
"""Characters of an enlarged leaf."""
LIMIT = 0.1
"""CPU seconds in the caller's process."""
GIVEN_UP = 3.0
"""CPU seconds after which an entry is given up."""
DRAWS = 20
"""Seeds that are tried for an entry."""
REPLACEMENTS: tuple[Any, ...] = (None, "", "x", 0, -1, 10**4000, 1e308, float("nan"), [], {}, [[1] * 9] * 9, "9" * 5000)
TEXTS = (
    "a",
    "9",
    "(",
    "[",
    " ",
    "'",
    "a to b. ",
    "between 1 to 2. ",
    "a, ",
    "1 x ",
    "x**9*",
    "- ",
    "1/",
    "[1],",
    "Q_\n",
)
"""What an enlarged text repeats, beside the leaf itself."""
LISTS: tuple[Any, ...] = (0, "a", [0] * 9)

Path = tuple[Any, ...]


class Cost(NamedTuple):
    seconds: float
    task: str
    path: str
    value: str


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of all parts of an entry; of a list, those of its first and last element."""
    if path:
        yield path
    if isinstance(value, dict):
        for key in value:
            yield from leaves(value[key], (*path, key))
    elif isinstance(value, (list, tuple)) and value:
        for place in {0, len(value) - 1}:
            yield from leaves(value[place], (*path, place))


def variants(value: Any) -> Iterator[Any]:
    """What a leaf is replaced by."""
    yield from REPLACEMENTS
    texts = list(TEXTS)
    if isinstance(value, str) and value:
        texts.append(value)
    for text in texts:
        yield text * (SIZE // len(text))
    lists = list(LISTS)
    if isinstance(value, (list, tuple)) and value:
        lists.append(value[0])
    for element in lists:
        yield [element] * (SIZE // (3 * len(str(element)) or 1))
    yield [[0] * (SIZE // 3)] * 9
    if isinstance(value, dict) and value:
        first = next(iter(value.values()))
        yield {str(number): first for number in range(SIZE // 20)}


def with_leaf(entry: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """A copy of the entry with another value at a path."""
    changed = copy.deepcopy(entry)
    part: Any = changed
    for step in path[:-1]:
        if isinstance(part[step], tuple):
            part[step] = list(part[step])
        part = part[step]
    part[path[-1]] = value
    return changed


def read_in_caller(task: str, entry: dict[str, Any]) -> None:
    """What `Scorer` does with an entry before a worker has it."""
    guard.check_size(entry)
    entry = dict(corrected(entry))
    texts = ["1", "wrong", "[[1, 0], [0, 1]]"]
    if isinstance(entry.get("answer"), str):
        texts.append(entry["answer"])
    if task in CHEAP:
        texts += cheap_answers(task, entry)
    for text in texts:
        if len(text) > guard.longest(entry, 8192):
            continue
        with contextlib.suppress(Refusal, guard.BrokenEntry):
            pickle.dumps(guard.admit(entry, text))


def cost_of(task: str, entry: dict[str, Any]) -> float:
    """CPU seconds of the caller's side; of one that does not end, the time after which it was given up."""
    signal.setitimer(signal.ITIMER_PROF, GIVEN_UP)
    start = time.process_time()
    with contextlib.suppress(guard.BrokenEntry, TimeoutError, TypeError, ValueError, AttributeError, LookupError):
        read_in_caller(task, entry)
    spent = time.process_time() - start
    signal.setitimer(signal.ITIMER_PROF, 0)
    return spent


def entry_of(task: str) -> dict[str, Any]:
    dataset = UpstreamDataset(task, base_options(task))
    for number in range(DRAWS):
        with contextlib.suppress(Exception):
            return dataset.make(hash64("fuzz", task, number) >> 32)
    raise ValueError(f"{task} makes no item")


def attack(task: str) -> list[Cost]:
    """The cost of every entry of one task."""
    entry = entry_of(task)
    costs = []
    for path in leaves(entry):
        if path == ("metadata",) or path == ("metadata", "source_dataset"):
            continue  # an entry that does not name its task is refused at once
        part: Any = entry
        for step in path:
            part = part[step]
        for value in variants(part):
            seconds = cost_of(task, with_leaf(entry, path, value))
            costs.append(Cost(seconds, task, ".".join(map(str, path)), f"{value!r:.30}"))
    return costs


def stop(*_: object) -> None:
    raise TimeoutError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*")
    arguments = parser.parse_args()
    signal.signal(signal.SIGPROF, stop)
    entries = slow = 0
    worst = Cost(0.0, "", "", "")
    for task in arguments.tasks or task_names():
        costs = attack(task)
        over = [cost for cost in costs if cost.seconds > LIMIT]
        entries += len(costs)
        slow += len(over)
        worst = max(worst, *costs)
        for cost in sorted(over, reverse=True)[:5]:
            print(f"{cost.seconds:.2f} s  {task}.{cost.path} = {cost.value}", flush=True)
    print(f"{entries:,} entries, {slow} over {LIMIT} CPU seconds; the slowest {worst.seconds:.3f} s: {worst[1:]}")


if __name__ == "__main__":
    main()
