"""What is known about the scorers of the tasks. One table: everything else reads it."""

from __future__ import annotations

from enum import StrEnum


class Soundness(StrEnum):
    """Whether a task's score can be trusted."""

    SOUND = "sound"
    """Audited: only right answers score."""
    GUARDED = "guarded"
    """Right, because rg_env checks the answer before the scorer sees it."""
    UNSOUND = "unsound"
    """Wrong answers are known to score, or the scorer runs the answer as code."""
    UNAUDITED = "unaudited"
    """Nothing is known against it."""


_RUNS_ANSWER = "its scorer runs the answer as code"

KNOWN_UNSOUND: dict[str, str] = {
    "binary_matrix": _RUNS_ANSWER,
    "coin_flip": "`0` scores 0.9 on average",
    "complex_arithmetic": "`nan` scores 1",
    "countdown": f"{_RUNS_ANSWER}; expressions that do not use the given numbers score 1",
    "game_of_life_halting": "any text scores 1",
    "intermediate_integration": f"{_RUNS_ANSWER}; `integrate(<the integrand>, x)` scores 1",
    "n_queens": f"{_RUNS_ANSWER}; an expression can read the solutions",
    "polynomial_multiplication": f"{_RUNS_ANSWER}; `expand(<the question>)` scores 1",
    "puzzle24": f"{_RUNS_ANSWER}; `4*3*2*1` scores 1 whatever the given numbers",
    "simple_integration": f"{_RUNS_ANSWER}; `integrate(<the integrand>, x)` scores 1",
    "spiral_matrix": _RUNS_ANSWER,
    "string_insertion": _RUNS_ANSWER,
}
"""Tasks whose reward can be had for nothing, or whose scorer is dangerous, with the reason (reasoning-gym 0.1.25).

They are left out of the default mix, of categories and of patterns; naming one exactly brings it in.
"""


def soundness_of(task: str) -> Soundness:
    """What is known about the scorer of `task`."""
    return Soundness.UNSOUND if task in KNOWN_UNSOUND else Soundness.UNAUDITED
