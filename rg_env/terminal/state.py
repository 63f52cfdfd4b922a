"""What is known about a run: its reports, added up. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from rg_env.terminal.reports import Report

_RECENT = 20
"""Steps that the rate is the mean of."""


@dataclass(frozen=True)
class Step:
    """A finished step, or batch of questions; None: nothing was measured.

    Attributes:
        reward: mean over rollouts; `solved`, `well_formed`: shares of rollouts, in [0, 1].
        seconds: since the previous step; None for the first one, which includes the start.
        line: what its groups were like.
    """

    number: int
    reward: float | None
    solved: float | None
    well_formed: float | None
    seconds: float | None = None
    line: str = ""


@dataclass
class RunState:
    """A run as far as it has reported.

    Attributes:
        command: `train`, `eval` or `collect`.
        began: seconds since the epoch; `phase_began` too.
        evaluations: the measured values at each evaluation's step.
        resumed_from: step of the checkpoint that was loaded; `checkpoint`: of the last one that can be continued from.
        error: why it failed, for its user; `stopping`: the signal that stops it.
    """

    command: str
    began: float
    phase: str = "reading the settings"
    phase_began: float = 0.0
    model: str = ""
    device: str = ""
    log: str | None = None
    dump: str | None = None
    run_id: str | None = None
    solved_at: float = 0.99
    total: int = 0
    steps: list[Step] = field(default_factory=list)
    evaluations: list[Step] = field(default_factory=list)
    files: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    resumed_from: int | None = None
    checkpoint: int | None = None
    error: str | None = None
    stopping: str | None = None
    has_ended: bool = False
    _last: float = 0.0

    def __post_init__(self) -> None:
        self.phase_began = self.phase_began or self.began

    @property
    def step(self) -> int:
        """The last finished step."""
        return self.steps[-1].number if self.steps else self.resumed_from or 0

    @property
    def unit(self) -> str:
        return "step" if self.command == "train" else "question"

    @property
    def seconds_per_step(self) -> float | None:
        """Over the last steps; None before the second one."""
        known = [step.seconds for step in self.steps[-_RECENT:] if step.seconds is not None]
        return fmean(known) if known else None

    @property
    def seconds_left(self) -> float | None:
        """Without evaluations; None if unknown."""
        seconds = self.seconds_per_step
        if seconds is None or len(self.steps) < 2:
            return None
        return seconds * (self.total - self.step) / max(1, self.steps[-1].number - self.steps[-2].number)

    def add(self, report: Report) -> None:
        """Take a report into account."""
        match report["kind"]:
            case "phase":
                self.phase, self.phase_began = report["name"], report["time"]
                self._last = 0.0 if report["name"] == "evaluating" else self._last
            case "start":
                self.model, self.device, self.solved_at = report["model"], report["device"], report["solved_at"]
            case "log":
                self.log = report["path"]
            case "run":
                self.run_id, self.dump = report["run_id"], report["dump"]
                self.steps, self.evaluations, self.files, self.statuses = [], [], Counter(), Counter()
            case "resumed":
                self.resumed_from = self.checkpoint = report["step"]
            case "checkpoint":
                self.checkpoint = report["step"]
            case "step":
                self._add_step(report)
            case "evaluation":
                self.evaluations.append(_measured(report))
            case "error":
                self.error = report["text"]

    def _add_step(self, report: Report) -> None:
        self.total = report["total"]
        seconds = report["time"] - self._last if self._last else None
        self._last = report["time"]
        self.files.update(report["counts"]["files"])
        self.statuses.update(report["counts"]["statuses"])
        self.steps.append(_measured(report, seconds))


def _measured(report: Report, seconds: float | None = None) -> Step:
    counts: dict[str, Any] = report["counts"]

    def mean(name: str) -> float | None:
        return counts[name] / counts["rollouts"] if counts["rollouts"] else None

    values = mean("rewards"), mean("solved"), mean("well_formed")
    return Step(report["step"], *values, seconds=seconds, line=report.get("line", ""))
