"""The results of an audit as a table for the terminal."""

from __future__ import annotations

from collections import Counter

from rich.table import Table

from rg_env.audit.run import Audit, Hole, TaskAudit

_COLUMNS = ("task", "counts", "attacks", "prior", "best cheap policy", "fully right")


def _hits(task: TaskAudit) -> str:
    """All hits of a task in one line: attacks per kind of hole, and the highest free reward with its text."""
    counts = Counter(hit.hole for hit in task.hits)
    parts = [f"{hole} ×{counts[hole]}" for hole in Hole if counts[hole] and hole is not Hole.FREE_REWARD]
    if free := [hit for hit in task.hits if hit.hole is Hole.FREE_REWARD]:
        best = max(free, key=lambda hit: hit.value)
        text = " ".join(best.text.split())
        parts.append(f"free reward {best.value:.2f} ×{len(free)} (`{text[:28]}{'…' if len(text) > 28 else ''}`)")
    return task.problem or ", ".join(parts) or "–"


def _cells(task: TaskAudit) -> tuple[str, ...]:
    policy = task.policy
    best = ("–", "–") if policy is None else (f"{policy.mean:.2f} {policy.policy}", f"{policy.right:.2f}")
    return (task.task, "yes" if task.counts else "no", _hits(task), f"{task.prior:.2f}", *best)


def render(audit: Audit) -> Table:
    """The table for the terminal."""
    table = Table(*_COLUMNS, box=None)
    table.columns[0].no_wrap = True
    for task in audit.tasks:
        table.add_row(*_cells(task), style="red" if task.counts and task.has_hole else "")
    return table


def verdict(audit: Audit) -> str:
    """The summary line."""
    counted = sum(task.counts for task in audit.tasks)
    holes = f"{len(audit.failed)} of {counted} tasks" + (f": {', '.join(audit.failed)}" if audit.failed else "")
    return f"holes that an answer can use: {holes}"
