"""What an export leaves out, and why.

Invariant: each group, rollout or example that is read but not written is counted once, under the first reason that
applies; a reason that applies to a group is not counted again for its rollouts.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum


class Reason(StrEnum):
    """Why something was left out; the value is shown to the user."""

    EVALUATION = "evaluation groups (training on them contaminates later evaluations; --include-eval)"
    OTHER_TASK = "groups of tasks that were not selected (--tasks)"
    UNREADABLE = "lines that could not be read"
    NO_TEXT = "groups that are only in the ledger: their text was not kept"
    TOO_FEW = "groups with fewer than two usable rollouts"
    NO_SIGNAL = "groups whose rewards are all equal (--keep-no-signal)"
    DIFFERENT_PROMPTS = "groups whose rollouts have different prompts"
    SMALL_MARGIN = "groups without two different responses whose scores differ by the margin (--margin)"

    NO_RESPONSE = "rollouts that do not end with a response to a prompt"
    BAD_TEXT = "rollouts with characters that cannot be encoded in UTF-8"
    NO_NUMBER = "rollouts without a score"
    SCORER_FAILED = "rollouts whose scorer failed (their score of 0 is meaningless)"
    VIOLATION = "rollouts that violate the format"
    REJECTED = "rollouts whose answer was rejected by the guard"
    TRUNCATED = "rollouts truncated at the length limit"
    LOW_SCORE = "rollouts below the minimum score (--min-score)"
    THINK_STAYS = "rollouts whose think block cannot be removed (--think drop)"
    NOT_BEST = "rollouts beyond the best of their group (--per-group)"
    NOT_PAIRED = "rollouts beyond the pairs of their group (--pairs)"
    DUPLICATE = "examples that differ from an earlier one only in whitespace"
    OVER_SHARE = "examples above their task's limit, chosen at random (--per-task)"


class LeftOut(Counter[Reason]):
    """How many of each reason."""

    def rows(self) -> list[tuple[str, int]]:
        """Texts and counts in the order of `Reason`, without zeros."""
        return [(reason.value, self[reason]) for reason in Reason if self[reason]]
