"""Which share of a batch each task gets, and which tasks a batch holds.

Invariant: pure functions. Shares are positive and sum to 1, and no task gets less than `floor` × its weight's share.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Mapping, Sequence

from rg_env.choices import Split
from rg_env.curriculum.rules import MIN_COUNTED
from rg_env.curriculum.solve_rate import Tally, total
from rg_env.tasks.draw import Draw, random_complexity, uniform
from rg_env.tasks.items import hash64


def usefulness(groups: Sequence[Tally]) -> float:
    """How much a policy can learn from a task, in (0, 1]: largest at solve rate 1/2.

    It is 4·p·(1 − p), the variance of a rollout's success relative to its maximum, where p is the solve rate of recent
    groups, smoothed to (solved + 1) / (counted + 2). It is 1 if fewer than `MIN_COUNTED` rollouts count, or fewer than
    half of all: then the solve rate is unknown, and practice is what brings a wrong format right.
    """
    solved, counted, rollouts = total(groups)
    if counted < MIN_COUNTED or 2 * counted < rollouts:
        return 1.0
    rate = (solved + 1) / (counted + 2)
    return 4 * rate * (1 - rate)


def adaptive_shares(weights: Mapping[str, float], useful: Mapping[str, float], floor: float) -> dict[str, float]:
    """Shares of the tasks: floor·w + (1 − floor)·w·s / Σ w·s.

    Args:
        weights: w, above 0; they need not sum to 1.
        useful: s of each task, in (0, 1].
        floor: in [0, 1]; 1 gives the shares of the weights.
    """
    whole = math.fsum(weights.values())
    gain = math.fsum(weights[task] * useful[task] for task in weights)
    return {
        task: floor * weight / whole + (1 - floor) * weight * useful[task] / gain for task, weight in weights.items()
    }


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
