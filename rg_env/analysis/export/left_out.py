"""What an export leaves out, and why.

Invariant: whatever is read and not written, a group, a rollout or an example, is counted under the first reason that
holds: what holds for a group is not counted again for its rollouts.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum


class Reason(StrEnum):
    """Why something was left out; the value is the sentence that people read."""

    EVALUATION = "evaluation groups (training on them spoils every later evaluation; --include-eval)"
    OTHER_TASK = "groups of tasks that were not asked for (--tasks)"
    UNREADABLE = "lines that could not be read"
    NO_TEXT = "groups that are in the ledger only: their text was not kept"
    TOO_FEW = "groups with fewer than two rollouts that can be used"
    NO_SIGNAL = "groups whose rewards are all equal (--keep-no-signal)"
    DIFFERENT_PROMPTS = "groups whose rollouts do not share one prompt"
    SMALL_MARGIN = "groups without two responses that differ, in text and by the margin (--margin)"

    NO_RESPONSE = "rollouts that do not end with a response to a prompt"
    BAD_TEXT = "rollouts with characters that UTF-8 cannot carry"
    NO_NUMBER = "rollouts without a score"
    SCORER_FAILED = "rollouts whose scorer failed: their 0 says nothing about them"
    VIOLATION = "rollouts that break the format"
    REJECTED = "rollouts whose answer the guard refused"
    TRUNCATED = "rollouts cut off at the length limit"
    LOW_SCORE = "rollouts below the threshold (--min-score)"
    THINK_STAYS = "rollouts whose think block cannot be cut out (--think drop)"
    NOT_BEST = "rollouts beyond the best of their group (--per-group)"
    NOT_PAIRED = "rollouts beyond the pairs of their group (--pairs)"
    DUPLICATE = "examples equal to an earlier one but for white space"
    OVER_SHARE = "examples over their task's share, drawn at random (--per-task)"


class LeftOut(Counter[Reason]):
    """How many of each reason."""

    def rows(self) -> list[tuple[str, int]]:
        """Sentences and counts, in the order of `Reason`; nothing where nothing was left out."""
        return [(reason.value, self[reason]) for reason in Reason if self[reason]]
