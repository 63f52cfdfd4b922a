"""From the scores of an answer to its base score. Pure, and recomputable from one line of a dump.

Two rules:

- The bare answer counts alone for tasks whose scorer gives credit for the letters or signs of `<answer>` (`RAW_ALONE`);
  for all others the higher of both forms counts.
- A partial score s counts only beyond the baseline b, the score of the best cheap policy on the same item, as
  max(0, (s − b) / (1 − b)). An answer that is fully right keeps its 1, even if the cheap policy is right too.
"""

from __future__ import annotations

from enum import StrEnum

RAW_ALONE = frozenset(
    {
        "emoji_mystery",
        "figlet_font",
        "letter_jumble",
        "palindrome_generation",
        "propositional_logic",
        "quantum_lock",
        "rush_hour",
        "sentence_reordering",
        "spell_backward",
        "tsumego",
    }
)
"""Tasks on which some answers score higher in tags than bare. None of those that were found is right."""

_FULLY_RIGHT = 1 - 1e-9


class PartialCredit(StrEnum):
    """How scores between 0 and 1 count."""

    UPSTREAM = "upstream"
    """As reasoning-gym gives them: b = 0."""
    CALIBRATED = "calibrated"
    """Beyond the baseline of the item, for the tasks in `rg_env.scoring.baselines`."""
    NONE = "none"
    """Not at all: b = 1."""


def base_score(task: str, raw: float, tagged: float, baseline: float) -> float:
    """The base score.

    Args:
        raw, tagged: upstream's scores of both forms, in [0, 1].
        baseline: b, in [0, 1].

    >>> base_score("sudoku", 0.75, 0.5, 0.5), base_score("sudoku", 1.0, 0.0, 1.0), base_score("sudoku", 0.4, 0.4, 0.5)
    (0.5, 1.0, 0.0)
    >>> base_score("figlet_font", 0.0, 0.2, 0.0)
    0.0
    """
    score = raw if task in RAW_ALONE else max(raw, tagged)
    if score >= _FULLY_RIGHT or baseline == 0:
        return score
    return max(0.0, (score - baseline) / (1 - baseline)) if baseline < 1 else 0.0
