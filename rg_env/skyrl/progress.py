"""Progress of a run inside Ray, shown on the driver's terminal.

The Ray task reports to a small actor and the driver polls it, which works wherever Ray placed the task.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import ray
from loguru import logger
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from rg_env.output import console


@dataclass
class Report:
    """A finished step of total, the metrics of that step, and a line about its groups."""

    step: int = 0
    total: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    groups: str = ""


class _Board:
    """Holds the last report, and those that have not been fetched yet."""

    def __init__(self) -> None:
        self._report = Report()
        self._new: list[Report] = []

    def put(self, report: Report) -> None:
        self._report = report
        self._new.append(report)

    def latest(self) -> Report:
        return self._report

    def fetch(self) -> list[Report]:
        new, self._new = self._new, []
        return new


class ProgressSink:
    """A picklable handle of the board: `report` in the task, `latest` and `fetch` in the driver."""

    def __init__(self) -> None:
        self._board = ray.remote(num_cpus=0)(_Board).remote()

    def report(self, step: int, total: int, metrics: dict[str, Any], groups: str = "") -> None:
        numbers = {key: float(value) for key, value in metrics.items() if isinstance(value, (int, float))}
        self._board.put.remote(Report(step, total, numbers, groups))

    def latest(self) -> Report:
        report: Report = ray.get(self._board.latest.remote())
        return report

    def fetch(self) -> list[Report]:
        """The reports since the last call, in order."""
        reports: list[Report] = ray.get(self._board.fetch.remote())
        return reports


def show_progress(job: Any, sink: ProgressSink | None) -> None:
    """Block until `job` ends. A bar on a terminal, one line per step elsewhere."""
    if sink is None:
        ray.wait([job])
    elif sys.stderr.isatty():
        _bar(job, sink)
    else:
        _lines(job, sink)


def _bar(job: Any, sink: ProgressSink) -> None:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console(stderr=True)) as bar:
        task = bar.add_task("loading the policy", total=None)
        while not ray.wait([job], timeout=0.5)[0]:
            report = sink.latest()
            if report.total:
                bar.update(task, description=_describe(report), completed=report.step, total=report.total)


def _lines(job: Any, sink: ProgressSink) -> None:
    ended = False
    while not ended:
        ended = bool(ray.wait([job], timeout=0.5)[0])
        for report in sink.fetch():
            parts = [part for part in (_describe(report), report.groups) if part]
            logger.info("step {}/{} | {}", report.step, report.total, " | ".join(parts))


def _describe(report: Report) -> str:
    def mean(*names: str) -> float | None:
        return next((report.metrics[name] for name in names if name in report.metrics), None)

    parts = {
        "reward": mean("reward/avg_raw_reward", "eval/all/avg_score"),
        "solved": mean("environment/rg_dump/mean_solved", "eval/all/environment/rg_dump/mean_solved"),
        "format": mean("environment/rg_dump/mean_well_formed", "eval/all/environment/rg_dump/mean_well_formed"),
    }
    return " ".join(f"{name} {value:.2f}" for name, value in parts.items() if value is not None) or "training"
