"""Which version of reasoning-gym was audited, and its tasks. Any other version is refused.

For another version: run `rg-env attack` and the tests with it, review the scorers that changed, and write it here.
"""

from __future__ import annotations

import functools
import importlib.metadata

from rg_env.errors import ConfigError

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


@functools.cache
def installed_version() -> str:
    """The installed version of reasoning-gym; `unknown` if it declares none."""
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
