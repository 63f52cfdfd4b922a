"""Which tasks a stratified batch holds: pure functions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Mapping

from rg_env.choices import Split
from rg_env.tasks.draw import Draw, random_complexity, uniform
from rg_env.tasks.items import hash64


def systematic(shares: Mapping[str, float], count: int, *key: object) -> list[str]:
    """The tasks of a batch: of each task its share × `count`, rounded up or down at random without bias.

    Systematic sampling: the shares lie side by side on a line of length `count`, and every point u, u + 1, u + 2, …
    selects the task that it falls on, with one uniform random u in [0, 1). The order of the tasks on the line is random
    as well, since in a fixed order neighboring tasks would exclude each other.

    Args:
        shares: they sum to 1.
        count: rows of the batch.
        key: what the random numbers are a function of.

    Returns:
        the tasks of the rows, in random order.
    """
    order = sorted(shares, key=lambda task: hash64("place", *key, task))
    ends = list(itertools.accumulate(shares[task] * count for task in order))
    start = uniform("start", *key)
    # Rounding errors of the sums may move an end by 1e-13 rows; the last end is infinite, so that no row is lost.
    ends[-1] = math.inf
    tasks, place = [], 0
    for row in range(count):
        while start + row >= ends[place]:
            place += 1
        tasks.append(order[place])
    return [task for _, task in sorted(enumerate(tasks), key=lambda pair: hash64("row", *key, pair[0]))]


def stratified_draws(
    shares: Mapping[str, float], scaled: Container[str], seed: int, split: Split, position: int, count: int
) -> list[Draw]:
    """The draws of a batch that holds the tasks in proportion to their shares (`systematic`).

    Args:
        scaled: the tasks whose complexity is random; the others have their default options.
        position: row number of the first row of the batch.
        count: rows of the batch.
    """
    return [
        Draw(task, row, random_complexity(seed, split, row) if task in scaled else None, shares[task])
        for row, task in enumerate(systematic(shares, count, seed, position), position)
    ]
