"""One audit: every payload on every task, on both sides.

Invariant: tasks are independent of each other; the result records the versions and settings of the audit.
"""

from __future__ import annotations

import datetime
import platform
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rg_env.audit.free_reward import FREE_MARGIN, FreeReward, free_reward
from rg_env.audit.payloads import Payload, payloads_for
from rg_env.audit.probes import FREE_REWARD, Finding, Reference, probe, subjects_of
from rg_env.audit.sides import OurSide, RawSide, Side
from rg_env.errors import describe
from rg_env.scoring import Measure, Scorer, sandbox_report
from rg_env.tasks import hash64, soundness_of, task_names
from rg_env.tasks.audited import installed_version
from rg_env.tasks.mix import TaskMix
from rg_env.tasks.upstream import UnusableItemError
from rg_env.tasks.upstream.dataset import UpstreamDataset

_SEED = 7
_MAX_REDRAWS = 100
POLICY_ITEMS = 5
"""Policies get this many times the items of payloads."""


@dataclass(frozen=True)
class TaskAudit:
    """The audit of one task. `problem`: why it could not be audited, in one line; else empty."""

    task: str
    in_default_mix: bool
    soundness: str
    payloads: int
    raw: tuple[Finding, ...] = ()
    ours: tuple[Finding, ...] = ()
    problem: str = ""
    free: FreeReward | None = None

    @property
    def has_hole(self) -> bool:
        """Whether our scorer has a hole, or could not be audited."""
        return bool(self.ours or self.problem) or (self.free is not None and self.free.excess > FREE_MARGIN)


@dataclass(frozen=True)
class Audit:
    """A whole audit with its versions and settings.

    Attributes:
        deadline: seconds per answer.
        free_reward: mean score from which a fixed text is a hole.
    """

    date: str
    reasoning_gym: str
    python: str
    system: str
    items: int
    deadline: float
    free_reward: float
    sandbox: tuple[Measure, ...]
    tasks: tuple[TaskAudit, ...]

    @property
    def failed(self) -> tuple[str, ...]:
        """Tasks of the default mix in which rg_env has a hole, or that could not be audited."""
        return tuple(task.task for task in self.tasks if task.in_default_mix and task.has_hole)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"failed": self.failed}


def run_audit(
    tasks: str | None = None,
    items: int = 20,
    quick: bool = False,
    deadline: float = 2.0,
    progress: Callable[[str, int, int], None] = lambda task, done, total: None,
) -> Audit:
    """Attack the scorers.

    Args:
        tasks: a task mix; None: every task, including those outside the default mix.
        items: per task, at least 1, for the payloads; policies get five times as many, or twice
            as many if `quick`.
        quick: use fewer payloads.
        deadline: seconds per answer.
        progress: called before each task, and at the end.

    Raises:
        ConfigError: the mix is invalid.
        ScorerPoolError: scorer processes cannot be started.
    """
    names = task_names() if tasks is None else tuple(task.name for task in TaskMix.parse(tasks).tasks)
    default_mix = {task.name for task in TaskMix.parse(None).tasks}
    done = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Scorer(workers=1, timeout=deadline) as scorer,
        closing(RawSide(deadline)) as raw,
    ):
        ours = OurSide(scorer, deadline)
        for number, task in enumerate(names):
            progress(task, number, len(names))
            chosen = payloads_for(task, quick)
            found: tuple[tuple[Finding, ...], tuple[Finding, ...]] = ((), ())
            problem = ""
            free = None
            try:
                entries = _entries(task, items * (2 if quick else POLICY_ITEMS))
                found = (
                    _audit(raw, task, entries[:items], chosen, f"{folder}/canary"),
                    _audit(ours, task, entries[:items], chosen, f"{folder}/canary"),
                )
                free = free_reward(task, entries, raw, ours)
            except _CannotAuditError as error:
                problem = str(error)
            done.append(
                TaskAudit(task, task in default_mix, soundness_of(task).value, len(chosen), *found, problem, free)
            )
        progress("", len(names), len(names))
    return Audit(
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        reasoning_gym=installed_version(),
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        items=items,
        deadline=deadline,
        free_reward=FREE_REWARD,
        sandbox=tuple(sandbox_report()),
        tasks=tuple(done),
    )


class _CannotAuditError(Exception):
    """A task generates no items."""


def _audit(
    side: Side, task: str, entries: Sequence[dict[str, Any]], payloads: Sequence[Payload], canary: str
) -> tuple[Finding, ...]:
    side.start(task)
    subjects = subjects_of(entries, side, canary)
    reference = Reference(side, subjects)
    found = [finding for payload in payloads for finding in probe(side, subjects, payload, reference)]
    Path(canary).unlink(missing_ok=True)
    return tuple(found)


def _entries(task: str, items: int) -> list[dict[str, Any]]:
    dataset = UpstreamDataset(task, {})
    made: list[dict[str, Any]] = []
    for draw in range(items + _MAX_REDRAWS):
        try:
            made.append(dataset.make(hash64("audit", task, _SEED, draw) % 2**32))
        except UnusableItemError:
            continue
        except Exception as error:
            raise _CannotAuditError(describe(error)) from error
        if len(made) == items:
            break
    if not made:
        raise _CannotAuditError("it generates no items")
    return made
