"""An audit for people: a table on the terminal, and a page for the documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.table import Table

from rg_env.audit.probes import Finding, Hole
from rg_env.audit.run import Audit


def summary(findings: Sequence[Finding]) -> str:
    """Holes in one line: how many payloads found each, and the best free reward with its text."""
    counts = Counter(finding.hole for finding in findings)
    parts = [f"{hole.value} ×{counts[hole]}" for hole in Hole if counts[hole] and hole is not Hole.FREE_REWARD]
    free = [finding for finding in findings if finding.hole is Hole.FREE_REWARD]
    if free:
        best = max(free, key=lambda finding: finding.value)
        text = " ".join(best.text.split())
        parts.append(f"free reward {best.value:.2f} ×{len(free)} (`{text[:28]}{'…' if len(text) > 28 else ''}`)")
    return ", ".join(parts)


def render(audit: Audit) -> Table:
    """The table."""
    table = Table("task", "default mix", "reasoning-gym's scorer", "rg_env's", box=None)
    table.columns[0].no_wrap = True
    for task in audit.tasks:
        ours = task.problem or summary(task.ours)
        style = "red" if task.in_default_mix and ours else ""
        table.add_row(
            task.task, "yes" if task.in_default_mix else "no", summary(task.raw) or "–", ours or "–", style=style
        )
    return table


def verdict(audit: Audit) -> str:
    """The last line."""
    raw = sum(bool(task.raw) for task in audit.tasks)
    mixed = sum(task.in_default_mix for task in audit.tasks)
    ours = f"{len(audit.failed)} of {mixed} tasks of the default mix" + (
        f": {', '.join(audit.failed)}" if audit.failed else ""
    )
    return f"holes in reasoning-gym's scorers: {raw} of {len(audit.tasks)} tasks; in rg_env's: {ours}"


def sandbox_lines(audit: Audit) -> list[str]:
    """What scorer processes are kept from doing, a line each."""
    return [f"{'yes' if m.active else 'NO '} {m.name}{f' ({m.why_not})' if m.why_not else ''}" for m in audit.sandbox]


def markdown(audit: Audit) -> str:
    """The page `docs/audit.md`."""
    payloads = max((task.payloads for task in audit.tasks), default=0)
    head = [
        "# What `rg-env audit` found",
        "",
        f"{audit.date}, reasoning-gym {audit.reasoning_gym}, Python {audit.python}, {audit.system}; up to {payloads} "
        f"payloads per task, {audit.items} items, {audit.deadline:g} s per answer. Made by `rg-env audit --markdown`.",
        "",
        f"**{verdict(audit)}.**",
        "",
        "×n: how many payloads showed it. *free reward*: the mean score that one text, which is no answer, earns over "
        f"all items, counted from {audit.free_reward:g}. What each word means stands in `rg_env/audit/probes.py`; what "
        "protects against it in [security.md](security.md).",
        "",
        "## Scorer processes on this machine",
        "",
        *(f"- {line}" for line in sandbox_lines(audit)),
        "",
        "## Tasks",
        "",
        "| task | default mix | reasoning-gym's scorer | `rg_env`'s |",
        "|---|---|---|---|",
    ]
    rows = [
        f"| {task.task} | {'yes' if task.in_default_mix else 'no'} | {_cell(summary(task.raw))} "
        f"| {_cell(task.problem or summary(task.ours))} |"
        for task in audit.tasks
    ]
    return "\n".join([*head, *rows, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|") or "–"
