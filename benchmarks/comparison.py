"""What a benchmark measures: our way and a rival's way to do the same, in turn, in the same process or the same way.

A benchmark is a module with a function `comparisons(folder, quick)` that yields a `Comparison` at a time. What it sets
up before a `yield` is there while the comparison runs. `NOTES` in the module lists what was tried and did not work.

Every figure is a cost (time or memory), so smaller is better. The ratio is that of one run of ours to the run of the
rival next to it, because load and temperature change more slowly than that.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

RUNS, SLOW_RUNS = 5, 3
Measure = Callable[[], float]
"""One run of one side; returns its cost in the unit of the comparison."""

SCALE = {"s": 1.0, "ms": 1e3, "µs": 1e6}
"""Units of time, per second."""


@dataclass(frozen=True)
class Goal:
    """The largest acceptable ratio or cost of ours."""

    ratio: float | None = None
    cost: float | None = None


@dataclass(frozen=True)
class Comparison:
    """Two ways to do the same.

    Attributes:
        what: is done, unique in the module.
        unit: of the costs: `s`, `ms`, `µs` or `MB`.
        ours, rival: one run of each.
        ours_name, rival_name: how the docs call them.
        goal: None if there is no promise to keep.
        slow: a run takes a minute: fewer pairs of them are made.
    """

    what: str
    unit: str
    ours: Measure
    rival: Measure
    rival_name: str
    ours_name: str = "rg_env"
    goal: Goal = Goal()
    slow: bool = False


@dataclass(frozen=True)
class Result:
    """The costs of `RUNS` runs of each side, in the order in which they were made."""

    what: str
    unit: str
    ours_name: str
    rival_name: str
    ours: list[float]
    rival: list[float]
    goal: Goal

    @property
    def ratios(self) -> list[float]:
        return [mine / theirs for mine, theirs in zip(self.ours, self.rival, strict=True)]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def cost(self) -> float:
        return statistics.median(self.ours)

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without one."""
        found = [(self.goal.ratio, self.ratio), (self.goal.cost, self.cost)]
        reached = [value <= most for most, value in found if most is not None]
        return all(reached) if reached else None


def run(comparison: Comparison, runs: int = RUNS) -> Result:
    """Make the runs, in pairs; who is first changes from pair to pair."""
    ours: list[float] = []
    rival: list[float] = []
    for number in range(runs):
        for mine in (True, False) if number % 2 == 0 else (False, True):
            (ours if mine else rival).append((comparison.ours if mine else comparison.rival)())
    names = ("what", "unit", "ours_name", "rival_name", "goal")
    return Result(ours=ours, rival=rival, **{name: getattr(comparison, name) for name in names})


def timed(work: Callable[[], object], unit: str, per: float = 1) -> Measure:
    """Wall time of `work`, divided by `per` (the number of things it does)."""

    def measure() -> float:
        start = perf_counter()
        work()
        return (perf_counter() - start) * SCALE[unit] / per

    return measure


def median_of_calls(call: Callable[[], object], unit: str, seconds: float = 0.5) -> Measure:
    """Median wall time of a call, over as many as fit into `seconds` and at least one."""

    def measure() -> float:
        times: list[float] = []
        end = perf_counter() + seconds
        while not times or perf_counter() < end:
            start = perf_counter()
            call()
            times.append(perf_counter() - start)
        return statistics.median(times) * SCALE[unit]

    return measure


@dataclass(frozen=True)
class Cost:
    """What a command cost: wall time and CPU time in seconds, and the peak memory of its largest process in MB."""

    wall: float
    cpu: float
    memory: float


def of_command(arguments: Sequence[str], **environment: str) -> Cost:
    """Run a command to its end, without its output.

    Raises:
        RuntimeError: it failed.
    """
    start = perf_counter()
    process = subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | environment,
    )
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed: {errors.decode(errors='replace')[-2000:]}")
    return Cost(perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def rg_env(*arguments: str) -> list[str]:
    """The command line of `rg-env` in this environment."""
    return [sys.executable, "-m", "rg_env", *arguments]


def python(program: str, *arguments: str) -> list[str]:
    """The command line of a short Python program."""
    return [sys.executable, "-c", program, *arguments]
