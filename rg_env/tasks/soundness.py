"""What is known about the scorers of reasoning-gym 0.1.25, declared here only.

`tests/tasks/test_soundness.py` reproduces each claim about upstream; the checks are in `rg_env.scoring.guard`.
"""

from __future__ import annotations

from enum import StrEnum

from rg_env.tasks.audited import AUDITED_TASKS


class Soundness(StrEnum):
    """Whether a task's score can be trusted."""

    SOUND = "sound"
    """By its source and by probing, upstream's scorer accepts correct answers only."""
    GUARDED = "guarded"
    """Upstream's scorer is exploitable; rg_env checks the answer before the scorer sees it."""
    UNSOUND = "unsound"
    """Wrong answers are known to score, and no check outside the scorer can reject them."""
    AUDITED = "audited"
    """`rg-env attack` found no hole (docs/evidence/attacks.md). The scorer's source has not been reviewed."""
    UNAUDITED = "unaudited"
    """A user's own task: nothing has been tried."""


KNOWN_UNSOUND: dict[str, str] = {
    "boxnet": "upstream skips impossible moves, so that moving every box through every square scores 1",
    "propositional_logic": "a premise, copied from the question, is a valid conclusion and scores 1",
    "rush_hour": "upstream skips impossible moves, so that 2,000 random moves solve one item of ten or twenty",
}
"""Tasks that reward wrong answers, with the reason.

They are excluded from the default mix, categories and patterns; naming one exactly includes it.
"""

OFTEN_FREE: dict[str, str] = {
    "aiw": "the last number of the question plus 1 is right on more than half of the items",
    "modulo_grid": "❌ in the single hole is right on more than nine of ten items (set max_holes higher)",
    "pool_matrix": "a copy of the matrix is right on a third of the items, those with kernel size 1 (set "
    "min_pool_size: 2)",
    "prime_factorization": "one division by 2, 3 or 5 is right on a fifth of the items (set min_value higher)",
    "rotate_matrix": "a copy of the matrix is right on more than a quarter of the items, those with full turns (set "
    "min_rotations: 1, max_rotations: 3)",
    "string_insertion": "a copy of the string is right on more than nine of ten items, which need no insertion (set "
    "min_string_length higher)",
    "string_manipulation": "a copy of the string is right on a third of the items, which no rule changes",
}
"""Tasks whose scores are correct, but whose right answer often needs no solving at their default options, with the
reason: measured by `rg-env attack`, more than 0.2 above the most frequent answer.

They are excluded from the default mix only.
"""

_RUNS_ANSWER = "upstream runs the answer as code"
_INTEGRATES = f"{_RUNS_ANSWER}, and gives `integrate(<the integrand>, x)` 1"
_SUBSTRING = "upstream accepts any text that contains the answer"

GUARDED: dict[str, str] = {
    "acre": f"{_SUBSTRING}; only on, off or undetermined pass",
    "binary_matrix": f"{_RUNS_ANSWER}; only numbers and lists pass",
    "codeio": "upstream gives deep objects 0.9, because it divides by their length; only the right value passes",
    "coin_flip": "upstream gives `0` 0.9 and hangs on 1e999999999; only probabilities within 1 % of the answer pass",
    "complex_arithmetic": "upstream gives `nan` 1; only finite numbers pass",
    "countdown": f"{_RUNS_ANSWER}; only arithmetic on exactly the given numbers passes",
    "course_schedule": f"{_SUBSTRING}; only True or False pass",
    "game_of_life": "upstream gives an empty board 0.97 and raises on mappings; only boards of 0 and 1 pass",
    "game_of_life_halting": "upstream gives any text 1; only the correct one of True and False passes",
    "gsm_symbolic": "upstream takes the first of several numbers; only one number passes",
    "intermediate_integration": f"{_INTEGRATES}; only elementary functions pass",
    "isomorphic_strings": f"{_SUBSTRING}; only True or False pass",
    "knights_knaves": "upstream gives both roles for one inhabitant; only one role for each passes",
    "letter_jumble": "upstream ignores what follows the sentence; not more words than the question has pass",
    "mahjong_puzzle": f"{_SUBSTRING}; only Peng, Chi or Pass pass",
    "n_queens": f"{_RUNS_ANSWER}, which can read the solutions; only boards and lists pass",
    "number_sorting": "upstream gives a list of NaN 1; only finite numbers pass",
    "polynomial_equations": "upstream gives small mistakes 0.99; only the solutions, to four decimals, pass",
    "polynomial_multiplication": f"{_RUNS_ANSWER}, and gives `expand(<the question>)` 1; only polynomials pass",
    "prime_factorization": "upstream gives the number itself 0.5; only other factors pass",
    "puzzle24": f"{_RUNS_ANSWER}, and gives `4*3*2*1` 1; only arithmetic on exactly the given numbers passes",
    "ransom_note": f"{_SUBSTRING}; only True or False pass",
    "rubiks_cube": "upstream fills gigabytes for R99999999; repeats are bounded",
    "simple_integration": f"{_INTEGRATES}; only elementary functions pass",
    "spell_backward": "upstream gives the whole question written backward 0.97; nothing may follow the correct word",
    "spiral_matrix": f"{_RUNS_ANSWER}; only numbers and lists pass",
    "string_insertion": f"{_RUNS_ANSWER}; only letters and lists pass",
    "syllogism": f"{_SUBSTRING}; only Yes or No pass",
    "time_intervals": "upstream gives any interval 0.8; only correct ones pass",
    "word_sorting": "upstream ignores what follows the list; not more words than the question has pass",
}
"""Tasks with a check in `rg_env.scoring.guard`: what upstream does, and what the check accepts."""

_SOUND = frozenset(
    {
        "ab",
        "bitwise_arithmetic",
        "decimal_arithmetic",
        "decimal_chain_sum",
        "dice",
        "family_relationships",
        "kakurasu",
        "needle_haystack",
        "number_format",
        "palindrome_partitioning",
        "path_star",
        "self_reference",
        "survo",
        "zebra_puzzles",
    }
)
"""Tasks whose scorers give 0 to everything but correct answers."""


def in_default_mix(task: str) -> bool:
    """Whether a task is used when no mix is given."""
    return task not in OFTEN_FREE and soundness_of(task) is not Soundness.UNSOUND


def soundness_of(task: str) -> Soundness:
    """What is known about the scorer of `task`."""
    if task in KNOWN_UNSOUND:
        return Soundness.UNSOUND
    if task in GUARDED:
        return Soundness.GUARDED
    if task in _SOUND:
        return Soundness.SOUND
    return Soundness.AUDITED if task in AUDITED_TASKS else Soundness.UNAUDITED


def reason_for(task: str) -> str:
    """Why a task is unsound, often free or guarded; empty otherwise."""
    return "; ".join(table[task] for table in (KNOWN_UNSOUND, OFTEN_FREE, GUARDED) if task in table)
