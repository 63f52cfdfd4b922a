"""Which tasks exist and which options they take, read from reasoning-gym's own registry.

Invariant: `composite` is never among them (it mixes tasks, which is our job), and nothing heavy is imported before a
function is called.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from types import MappingProxyType
from typing import Any

from loguru import logger

from rg_env.errors import ConfigError
from rg_env.tasks.soundness import Soundness, reason_for, soundness_of
from rg_env.tasks.upstream import UnusableItemError
from rg_env.tasks.upstream.dataset import UpstreamDataset, reasoning_gym

_MIXERS = frozenset({"composite"})
_OURS = ("size", "seed")

_FALLBACK: dict[str, str] = {
    "algebra": "complex_arithmetic intermediate_integration polynomial_equations polynomial_multiplication "
    "simple_equations simple_integration",
    "algorithmic": "ab base_conversion binary_alternation binary_matrix caesar_cipher count_primes cryptarithm "
    "game_of_life game_of_life_halting graph_color group_anagrams isomorphic_strings jugs letter_counting "
    "letter_jumble manipulate_matrix number_filtering number_sorting palindrome_generation palindrome_partitioning "
    "pool_matrix ransom_note rotate_matrix rotten_oranges sentence_reordering spell_backward spiral_matrix "
    "string_insertion string_manipulation string_splitting string_synthesis word_ladder word_sequence_reversal "
    "word_sorting",
    "arc": "arc_1d arc_agi rearc",
    "arithmetic": "basic_arithmetic bitwise_arithmetic calendar_arithmetic chain_sum count_bits decimal_arithmetic "
    "decimal_chain_sum dice fraction_simplification gcd gsm_symbolic lcm leg_counting number_format power_function "
    "prime_factorization products time_intervals",
    "code": "bf codeio",
    "cognition": "color_cube_rotation figlet_font modulo_grid needle_haystack number_sequence rectangle_count "
    "rubiks_cube",
    "games": "boxnet countdown emoji_mystery futoshiki kakurasu knight_swap mahjong_puzzle maze mini_sudoku n_queens "
    "puzzle24 rush_hour sokoban sudoku survo tower_of_hanoi tsumego",
    "geometry": "advanced_geometry simple_geometry",
    "graphs": "course_schedule family_relationships largest_island path_star quantum_lock shortest_path",
    "induction": "acre list_functions",
    "logic": "aiw circuit_logic knights_knaves propositional_logic self_reference syllogism zebra_puzzles",
    "probability": "coin_flip",
}
"""The 105 tasks of reasoning-gym 0.1.25 by category, for versions whose registry cannot be read."""


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """One task as `rg-env tasks` shows it.

    Attributes:
        in_default_mix: False for unsound tasks and for tasks that failed when tried.
        reason: why it is unsound, or what its guard closes; empty otherwise.
        has_curriculum: whether reasoning-gym knows levels of difficulty for it.
        state: `ok`, what went wrong when an item was made, or `not tried`.
    """

    name: str
    category: str
    in_default_mix: bool
    soundness: Soundness
    reason: str
    has_curriculum: bool
    state: str

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self)


@functools.cache
def task_categories() -> Mapping[str, str]:
    """The category of every task, in order of the names."""
    try:
        found = {
            name: dataset_class.__module__.split(".")[1]
            for name, (dataset_class, _) in _registered().items()
            if name not in _MIXERS
        }
        if not found:
            raise LookupError("it is empty")
    except Exception as error:
        logger.warning("the registry of reasoning-gym cannot be read ({}): going by the known names", one_line(error))
        found = {name: category for category, names in _FALLBACK.items() for name in names.split()}
    return MappingProxyType(dict(sorted(found.items())))


def task_names() -> tuple[str, ...]:
    """Every task, sorted."""
    return tuple(task_categories())


def list_tasks(validate: bool = True) -> list[TaskInfo]:
    """Every task with its state; with `validate`, each is tried by making one item (about 3 s for all)."""
    curricula = _curricula()
    result = []
    for name, category in task_categories().items():
        error = validate_task(name, {}) if validate else None
        soundness = soundness_of(name)
        result.append(
            TaskInfo(
                name=name,
                category=category,
                in_default_mix=soundness is not Soundness.UNSOUND and error is None,
                soundness=soundness,
                reason=reason_for(name),
                has_curriculum=name in curricula,
                state=(error or "ok") if validate else "not tried",
            )
        )
    return result


def validate_task(name: str, options: Mapping[str, Any]) -> str | None:
    """Try a task by making one item.

    Returns:
        None, or in one line what went wrong.
    """
    dataset = UpstreamDataset(name, options)
    for seed in range(100):
        try:
            dataset.make(seed)
        except UnusableItemError:
            continue
        except Exception as error:
            return one_line(error)
        return None
    return "no item in 100 tries"


def check_name(name: str) -> None:
    """Refuse what is no task.

    Raises:
        ConfigError: with the nearest known names.
    """
    if name in _MIXERS:
        raise ConfigError(f"task {name!r} only mixes other tasks: name those in `tasks`, with weights")
    if name not in task_categories():
        raise ConfigError(f"unknown task {name!r}{did_you_mean(name, task_names(), '`rg-env tasks` lists them')}")


def check_options(task: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Check a task's options by making its config, whose own `validate` has the last word.

    Args:
        task: an existing task.
        options: fields of the task's config, as YAML or JSON gives them.

    Returns:
        the options as reasoning-gym takes them: lists become tuples where the default is one.

    Raises:
        ConfigError: naming the option and what would be right.
    """
    if not options:
        return {}
    config_class = _config_class(task)
    known = {field.name: field for field in fields(config_class)}
    checked: dict[str, Any] = {}
    for name, value in options.items():
        if name in _OURS:
            raise ConfigError(f"task {task!r}: option {name!r} is not for the task: set the dataset's own `{name}`")
        if name not in known:
            choices = sorted(set(known) - set(_OURS))
            hint = did_you_mean(str(name), choices, f"it has {', '.join(choices) or 'none'}")
            raise ConfigError(f"task {task!r} has no option {name!r}{hint}")
        default = known[name].default
        if isinstance(default, tuple) and isinstance(value, list):
            value = tuple(value)
        if default is not MISSING and (right := _expected(default, value)):
            raise ConfigError(f"task {task!r}: option {name}={value!r} must be {right}, such as {default!r}")
        checked[name] = value
    try:
        config = config_class(**checked)
        if hasattr(config, "validate"):
            config.validate()
    except Exception as error:
        given = ", ".join(f"{name}={value!r}" for name, value in checked.items())
        raise ConfigError(f"task {task!r} refuses {given}: {one_line(error)}") from error
    return checked


def did_you_mean(word: str, known: Iterable[str], otherwise: str) -> str:
    """`; did you mean a or b?` where something known is near, else `; <otherwise>`."""
    near = difflib.get_close_matches(word, list(known), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else f"; {otherwise}"


def one_line(error: BaseException) -> str:
    """An exception in one line; its class where it says nothing itself."""
    text = " ".join(str(error).split())
    if isinstance(error, AssertionError):
        return text or "a check of its own failed"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _registered() -> Mapping[str, tuple[type[Any], type[Any]]]:
    registered: Mapping[str, tuple[type[Any], type[Any]]] = reasoning_gym().factory.DATASETS
    return registered


def _curricula() -> frozenset[str]:
    try:
        return frozenset(reasoning_gym().factory.CURRICULA)
    except (ImportError, AttributeError):
        return frozenset()


def _config_class(task: str) -> type[Any]:
    try:
        return _registered()[task][1]
    except Exception:  # no readable registry: a dataset carries its config
        return type(reasoning_gym().create_dataset(task).config)


def _expected(default: Any, value: Any) -> str | None:
    """What an option with this default takes, in words, if `value` is something else; None if it may pass."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if isinstance(default, bool):
        return None if isinstance(value, bool) else "true or false"
    if isinstance(default, int):
        return None if is_number and isinstance(value, int) else "a whole number"
    if isinstance(default, float):
        return None if is_number else "a number"
    if isinstance(default, str):
        return None if isinstance(value, str) else "a text"
    if isinstance(default, tuple):
        return None if isinstance(value, tuple) else "a list"
    return None
