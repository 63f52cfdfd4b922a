"""Runs one benchmark."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from time import perf_counter

from loguru import logger

from benchmarks.comparison import RUNS, SLOW_RUNS, Comparison, Result, run


@dataclass(frozen=True)
class Section:
    """The results of one benchmark, what it measures in a sentence or two, and what was tried without success."""

    name: str
    about: str
    results: Sequence[Result]
    notes: Sequence[str]


def _runs(comparison: Comparison, quick: bool) -> int:
    """Return how many pairs of runs are made."""
    if quick:
        return 1 if comparison.slow else 2
    return SLOW_RUNS if comparison.slow else RUNS


def measure(name: str, quick: bool) -> Section:
    """Make all comparisons of `bench_NAME.py`."""
    logger.remove()
    module = import_module(f"benchmarks.bench_{name}")
    results: list[Result] = []
    start = perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for comparison in module.comparisons(Path(folder), quick):
            result = run(comparison, _runs(comparison, quick))
            results.append(result)
            print(f"{name}: {result.what}: {result.cost:.3g} {result.unit}, ratio {result.ratio:.3g}", flush=True)
    print(f"{name}: {perf_counter() - start:.0f} s", flush=True)
    return Section(name, (module.__doc__ or "").strip().split("\n\n")[0], results, tuple(getattr(module, "NOTES", ())))
