"""`make bench`: what its figures mean, and that the page in the docs is its output."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.comparison import Comparison, Goal, run
from benchmarks.page import Report, page

ROOT = Path(__file__).resolve().parents[1]


def costs(*values: float):
    """A side that costs these, one run after the other."""
    return iter(values).__next__


def compared(goal: Goal | None = None):
    goal = goal or Goal()
    return run(Comparison("sorting", "ms", costs(1, 4, 9), costs(2, 2, 3), "`sorted`", goal=goal), runs=3)


def test_the_ratio_is_the_median_of_those_of_neighboring_runs():
    result = compared()
    assert (result.ratios, result.ratio, result.cost) == ([0.5, 2, 3], 2, 4)


def test_who_is_first_changes_from_pair_to_pair():
    order: list[str] = []
    sides = [lambda name=name: order.append(name) or 1.0 for name in "or"]
    run(Comparison("sorting", "ms", *sides, "`sorted`"), runs=3)
    assert "".join(order) == "orroor"


@pytest.mark.parametrize(
    ("goal", "met"),
    [
        (Goal(), None),
        (Goal(ratio=2), True),
        (Goal(ratio=1.9), False),
        (Goal(cost=4), True),
        (Goal(ratio=2, cost=3), False),
    ],
)
def test_a_goal_is_met_if_all_of_it_is(goal, met):
    assert compared(goal).met is met


def test_the_page_in_the_docs_is_the_output_of_the_last_full_run():
    report = Report.from_json(json.loads((ROOT / "evidence" / "benchmarks.json").read_text()))
    assert not report.quick
    assert (ROOT / "evidence" / "benchmarks.md").read_text() == page(report)
    assert [section.name for section in report.sections] == sorted(
        path.stem.removeprefix("bench_") for path in (ROOT / "benchmarks").glob("bench_*.py")
    )


def test_an_unknown_benchmark_is_one_line():
    done = subprocess.run([sys.executable, "-m", "benchmarks", "speed"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "there is no benchmark 'speed'; choose from " in done.stderr.splitlines()[-1]


@pytest.mark.weekly
@pytest.mark.timeout(1500)
def test_every_benchmark_runs():
    """In a few seconds each, so that a renamed function cannot break them unnoticed. Their figures are not judged."""
    done = subprocess.run([sys.executable, "-m", "benchmarks", "--quick"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
