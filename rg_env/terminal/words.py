"""A run in words: one line per step and evaluation, durations, paths. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rg_env.terminal.reports import Report
from rg_env.terminal.state import RunState, Step


def duration(seconds: float) -> str:
    """`42 s`, `1 min 5 s`, `2 h 3 min`, `3 d 4 h`.

    >>> duration(65.2)
    '1 min 5 s'
    """
    whole = round(seconds)
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    place = next((place for place, (size, _) in enumerate(units) if whole >= size), 3)
    parts: list[str] = []
    for size, name in units[place : place + 2]:
        amount, whole = divmod(whole, size)
        if amount or not parts:
            parts.append(f"{amount} {name}")
    return " ".join(parts)


def short_path(path: str) -> str:
    """Relative to the current folder if it is below it."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path


def rate(state: RunState) -> str | None:
    """How fast the run is."""
    seconds = state.seconds_per_step
    if seconds is None:
        return None
    if state.unit == "step":
        return f"{seconds:.2g} s per step" if seconds < 10 else f"{duration(seconds)} per step"
    last = state.steps[-1].number - state.steps[-2].number
    return f"{last / max(seconds, 1e-3):.2g} questions/s"


def measured(step: Step) -> str:
    """The values of a step: `reward 0.47 solved 0.35 format 1.00`."""
    values = {"reward": step.reward, "solved": step.solved, "format": step.well_formed}
    return " ".join(f"{name} {value:.2f}" for name, value in values.items() if value is not None)


def step_line(state: RunState, step: Step) -> str:
    """A finished step as one line."""
    parts = [measured(step), step.line]
    if step.seconds is not None:
        parts.insert(0, f"{step.seconds:.1f} s")
    return " | ".join(filter(None, [f"{state.unit} {step.number}/{state.total}", *parts]))


def evaluation_line(step: Step) -> str:
    """An evaluation as one line."""
    return f"evaluation after step {step.number}: {measured(step)}"


def remark(report: Report) -> str:
    """A report that is neither a step nor an evaluation, as one line."""
    match report["kind"]:
        case "note":
            return f"{report['level'].lower()}: {report['text']}"
        case "log":
            return f"log: {short_path(report['path'])}"
        case "run":
            return f"run {report['run_id']}, dump: {short_path(report['dump'])}"
        case "resumed":
            return f"resumed from step {report['step']}"
        case _:
            return str(report["name"])


def counted(counts: Mapping[str, int]) -> str:
    """`1,536 ok, 2 timeout`, the most frequent first."""
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))
