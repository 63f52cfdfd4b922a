"""Sets of values that the library and the command line share.

Invariant: imports nothing but the standard library, so that `rg-env --help` loads nothing heavy.
"""

from __future__ import annotations

from enum import StrEnum


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


class By(StrEnum):
    """How statistics are grouped, in addition to run and phase."""

    TASK = "task"
    STEP = "step"
    PHASE = "phase"
    LEVEL = "level"
    """A task at one level of difficulty."""
    OUTCOME = "outcome"
    VIOLATION = "violation"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that distinguish the rows."""
        return ("task", "level") if self is By.LEVEL else (self.value,)


class Think(StrEnum):
    """What an export does with the think block of responses."""

    KEEP = "keep"
    DROP = "drop"


class PerTask(StrEnum):
    """How many examples of each task an export keeps, as an alternative to a number."""

    ALL = "all"
    MEDIAN = "median"
    """As many as the median task has (the lower of the two in the middle)."""
    SMALLEST = "smallest"
    """As many as the smallest task has: all equal."""


class PairBy(StrEnum):
    """The score by which a preference pair is chosen."""

    SCORE = "score"
    """After the length penalty: of two correct answers the shorter may be preferred."""
    BASE_SCORE = "base_score"
