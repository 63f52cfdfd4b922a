"""Whether two runs' questions with equal ids are equal, from the runs' manifests.

Invariant: an id names a question only together with the options of its task, so tasks whose options differ are named.
Runs without a manifest are trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rg_env.dump import Dump, Run


def differing_tasks(dump: Dump, other: Dump) -> list[str]:
    """The tasks whose options differ between any two of the runs, sorted."""
    known: dict[str, Any] = {}
    differing = set()
    for run in (*dump.runs, *other.runs):
        for task, options in _options(run).items():
            if known.setdefault(task, options) != options:
                differing.add(task)
    return sorted(differing)


def differing_suites(dump: Dump, other: Dump) -> str | None:
    """One line on two runs that answered different suites; None if all are the same, or unknown."""
    manifests = [[run.manifest for run in side.runs if "suite" in (run.manifest or {})] for side in (dump, other)]
    if not all(manifests):
        return None
    from rg_env.suites.suite import same_suite  # loads reasoning-gym

    remarks = (same_suite(mine, theirs) for mine, theirs in product(*manifests))
    return next(filter(None, remarks), None)


def _options(run: Run) -> dict[str, Any]:
    mix = (run.manifest or {}).get("task_mix")
    if not isinstance(mix, Mapping):
        return {}
    return {str(task): chosen.get("config") for task, chosen in mix.items() if isinstance(chosen, Mapping)}
