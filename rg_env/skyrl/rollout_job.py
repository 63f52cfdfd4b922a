"""What a run without training does. Light to import, unlike the run."""

from __future__ import annotations

from dataclasses import dataclass

from rg_env.suites.suite import FIXED


@dataclass(frozen=True)
class RolloutJob:
    """What to collect.

    Attributes:
        command: `collect` (phase train) or `eval`.
        folder: of the dump.
        groups: questions of the train split; None for an evaluation.
        suite: of an evaluation.
        step: recorded with every group: the global step of an evaluated checkpoint.
    """

    command: str
    folder: str
    resume: bool
    groups: int | None = None
    suite: str = FIXED
    step: int | None = None
