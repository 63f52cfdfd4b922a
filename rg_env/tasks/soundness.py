"""The knowledge about the scorers of reasoning-gym 0.1.25, declared here only. Any other version is refused.

`tests/tasks/test_soundness.py` reproduces each claim about upstream; the checks are in `rg_env.scoring.guard`. For
another version: run `rg-env attack` and the tests with it, review the scorers that changed, and write it here.
"""

from __future__ import annotations

import functools
import importlib.metadata
from enum import StrEnum

from rg_env.base.errors import ConfigError

AUDITED_VERSION = "0.1.25"
"""The version of reasoning-gym whose scorers were audited."""

AUDITED_TASKS = frozenset(
    """
    ab acre advanced_geometry aiw arc_1d arc_agi base_conversion basic_arithmetic bf binary_alternation
    binary_matrix bitwise_arithmetic boxnet caesar_cipher calendar_arithmetic chain_sum circuit_logic codeio
    coin_flip color_cube_rotation complex_arithmetic count_bits count_primes countdown course_schedule cryptarithm
    decimal_arithmetic decimal_chain_sum dice emoji_mystery family_relationships figlet_font fraction_simplification
    futoshiki game_of_life game_of_life_halting gcd graph_color group_anagrams gsm_symbolic intermediate_integration
    isomorphic_strings jugs kakurasu knight_swap knights_knaves largest_island lcm leg_counting letter_counting
    letter_jumble list_functions mahjong_puzzle manipulate_matrix maze mini_sudoku modulo_grid n_queens
    needle_haystack number_filtering number_format number_sequence number_sorting palindrome_generation
    palindrome_partitioning path_star polynomial_equations polynomial_multiplication pool_matrix power_function
    prime_factorization products propositional_logic puzzle24 quantum_lock ransom_note rearc rectangle_count
    rotate_matrix rotten_oranges rubiks_cube rush_hour self_reference sentence_reordering shortest_path
    simple_equations simple_geometry simple_integration sokoban spell_backward spiral_matrix string_insertion
    string_manipulation string_splitting string_synthesis sudoku survo syllogism time_intervals tower_of_hanoi
    tsumego word_ladder word_sequence_reversal word_sorting zebra_puzzles
    """.split()  # noqa: SIM905  (105 names in 15 lines)
)
"""The tasks of that version. A name that is not here is that of a task that a user's module brings."""


class Soundness(StrEnum):
    """Whether a task's score can be trusted."""

    SOUND = "sound"
    """By its source and by probing, upstream's scorer accepts correct answers only."""
    GUARDED = "guarded"
    """Upstream's scorer is exploitable; rg_env checks the answer before the scorer sees it."""
    UNSOUND = "unsound"
    """Wrong answers are known to score, and no check outside the scorer can reject them."""
    AUDITED = "audited"
    """`rg-env attack` found no hole (evidence/attacks.md). The scorer's source has not been reviewed."""
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
    "game_of_life_halting": "False if two living cells lie side by side, else True, is right on 0.95 of the items",
    "modulo_grid": "❌ in the single hole is right on more than nine of ten items (set max_holes higher)",
    "number_sequence": "the answer to the most similar of 200 questions is right on 0.57 of other items",
    "pool_matrix": "a copy of the matrix is right on a third of the items, those with kernel size 1 (set "
    "min_pool_size: 2)",
    "prime_factorization": "one division by 2, 3 or 5 is right on a fifth of the items (set min_value higher)",
    "rotate_matrix": "a copy of the matrix is right on more than a quarter of the items, those with full turns (set "
    "min_rotations: 1, max_rotations: 3)",
    "string_insertion": "a copy of the string is right on more than nine of ten items, which need no insertion (set "
    "min_string_length higher)",
    "string_manipulation": "a copy of the string is right on a third of the items, which no rule changes",
    "tower_of_hanoi": "there are 76 different questions, and answers to 200 of them are right on 0.86 of other items",
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
    "coin_flip": "upstream gives `0` 0.9 and hangs on large exponents; only values within 1% of the answer pass",
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
    "rubiks_cube": "upstream writes out a turn with a large number, in gigabytes; repeats are bounded",
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
    """
    ab bitwise_arithmetic decimal_arithmetic decimal_chain_sum dice family_relationships kakurasu needle_haystack
    number_format palindrome_partitioning path_star self_reference survo zebra_puzzles
    """.split()  # noqa: SIM905
)
"""Tasks whose scorers give 0 to everything but correct answers."""


@functools.cache
def installed_version() -> str:
    """Return the installed version of reasoning-gym; `unknown` if it declares none."""
    try:
        return importlib.metadata.version("reasoning-gym")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def check_audited() -> None:
    """Refuse a version of reasoning-gym whose scorers were not audited.

    Raises:
        ConfigError: naming both versions.
    """
    if installed_version() != AUDITED_VERSION:
        raise ConfigError(
            f"reasoning-gym {installed_version()} is installed, but only the scorers of {AUDITED_VERSION} were "
            f"audited: pip install reasoning-gym=={AUDITED_VERSION}"
        )


def in_default_mix(task: str) -> bool:
    """Return whether a task is used when no mix is given."""
    return task not in OFTEN_FREE and soundness_of(task) is not Soundness.UNSOUND


def soundness_of(task: str) -> Soundness:
    """Return how far the scorer of a task can be trusted."""
    # In this order: a guard does not make an unsound task sound.
    if task in KNOWN_UNSOUND:
        return Soundness.UNSOUND
    if task in GUARDED:
        return Soundness.GUARDED
    if task in _SOUND:
        return Soundness.SOUND
    return Soundness.AUDITED if task in AUDITED_TASKS else Soundness.UNAUDITED


def reason_for(task: str) -> str:
    """Return why a task is unsound, often free or guarded; empty otherwise."""
    return "; ".join(table[task] for table in (KNOWN_UNSOUND, OFTEN_FREE, GUARDED) if task in table)
