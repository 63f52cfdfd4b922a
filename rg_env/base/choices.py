"""Sets of values that the library and the command line share.

Invariant: imports nothing but the standard library, so that `rg-env --help` loads nothing heavy.
"""

from __future__ import annotations

from enum import StrEnum

SOLVED_AT = 0.99
"""The score from which a response is solved where no setting says otherwise. Below 1, as it may be a sum of floats."""


class Split(StrEnum):
    """Two disjoint sets of questions: about 7/8 of a task's are `train`, 1/8 are `eval`."""

    TRAIN = "train"
    EVAL = "eval"


class ResponseFormat(StrEnum):
    """What a response must look like for its answer to count (`rg_env.scoring.parse`)."""

    STRICT = "strict"
    """One think block, then one answer block."""
    LENIENT = "lenient"
    """An answer block, as in the Atropos environment."""


class LengthPenalty(StrEnum):
    """The rules of `rg_env.scoring.length`."""

    ATROPOS = "atropos"
    DAPO = "dapo"
    KIMI = "kimi"
    NONE = "none"


class RowFormat(StrEnum):
    """The trainer that an exported file of prompts is for."""

    SKYRL = "skyrl"
    VERL = "verl"


class By(StrEnum):
    """How statistics are grouped, in addition to run, phase and environment."""

    TASK = "task"
    CATEGORY = "category"
    """Reasoning Gym's categories of tasks; tasks that it does not have are in `other`."""
    STEP = "step"
    PHASE = "phase"
    LEVEL = "level"
    """A task at a tenth of its scale of difficulty."""
    ENVIRONMENT = "environment"
    """SkyRL's env class."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that distinguish the rows."""
        if self is By.LEVEL:
            return ("task", "complexity")
        return (self.value,)


class SortBy(StrEnum):
    """The order in which groups are shown, the largest first."""

    SCORE = "score"
    """Mean base score."""
    LENGTH = "length"
    """Mean length of the responses, in tokens."""
    SPREAD = "spread"
    """Best base score minus worst."""


def parse_by(text: str) -> tuple[By, ...]:
    """Parse one or more values of `By`, separated by commas.

    Raises:
        ValueError: an unknown value; the message lists the valid ones.
    """
    try:
        return tuple(By(word.strip()) for word in text.split(","))
    except ValueError:
        raise ValueError(f"use one of {', '.join(By)}, or several separated by commas") from None


class Think(StrEnum):
    """What an export does with the think block of responses."""

    KEEP = "keep"
    DROP = "drop"
