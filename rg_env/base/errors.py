"""Errors that the command line shows to users, and helpers to raise them.

Invariant: a message is one line that says what is wrong and how to fix it.
"""

from __future__ import annotations

import enum
import importlib.util
import math
from collections.abc import Iterable
from typing import NoReturn

from rg_env.base.wording import number_meant
from rg_env.runner.failures import ConfigError, ScorerPoolError, describe, one_line
from rg_env.runner.failures import OneLineError as RGEnvError

__all__ = [
    "ConfigError",
    "DumpError",
    "MissingGroupsError",
    "RGEnvError",
    "ScorerPoolError",
    "UnavailableError",
    "as_typed",
    "describe",
    "did_you_mean",
    "need",
    "need_extra",
    "need_number",
    "one_line",
    "refuse",
    "similar_words",
    "wrong_value",
]

_SIMILAR = 0.65
"""How similar words are, by `difflib`, from which one may be meant: `gdc` and `gcd` are .67."""


class UnavailableError(ConfigError):
    """Something that a run needs is not on this machine or does not answer: GPUs, a server, a hub.

    The settings may be right: `rg-env train --check` only warns.
    """


class MissingGroupsError(RGEnvError):
    """A run is over, and groups are missing from its dump, because the disk failed."""

    exit_code = 3


class DumpError(RGEnvError):
    """The dump folder or a dump file cannot be used as requested."""


def wrong_value(setting: str, value: object, right: str) -> str:
    """Return the one line about a wrong setting.

    >>> wrong_value("trainer.bf16", True, "set it to false")
    'trainer.bf16=true: set it to false'
    """
    return f"{setting}={as_typed(value)}: {right}"


def refuse(setting: str, value: object, right: str) -> NoReturn:
    """Raise the `ConfigError` of a wrong setting."""
    raise ConfigError(wrong_value(setting, value, right))


def need(ok: object, setting: str, value: object, right: str) -> None:
    """`refuse` the setting unless `ok`."""
    if not ok:
        refuse(setting, value, right)


def need_number(
    setting: str,
    value: object,
    *,
    whole: bool = False,
    at_least: float = -math.inf,
    above: float = -math.inf,
    at_most: float = math.inf,
    below: float = math.inf,
) -> None:
    """Refuse anything but a finite number within the limits; with `whole`, anything but an integer."""
    # A bool is an int in Python, and true is not a number in YAML.
    is_number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    ok = is_number and at_least <= value <= at_most and above < value < below  # type: ignore[operator]
    # Only the limits that were given are named.
    bounds = []
    for words, limit in {"of at least": at_least, "above": above, "at most": at_most, "below": below}.items():
        if abs(limit) != math.inf:
            bounds.append(f"{words} {limit}")
    if not ok:
        meant = number_meant(str(value), whole=whole) if not is_number else ""
        right = f"must be a {'whole number' if whole else 'number'} {' and '.join(bounds)}".rstrip()
        refuse(setting, value, f"{right}; write {meant}" if meant else right)


def need_extra(extra: str, module: str, user: str) -> None:
    """Refuse what needs an optional package of pyproject.toml unless that can be imported.

    Args:
        extra: its name in `[project.optional-dependencies]`.
        module: one of those that it brings.
        user: what needs it, for the message.
    """
    if importlib.util.find_spec(module) is None:
        raise ConfigError(f"{user} needs {module}: pip install '.[{extra}]' in the checkout of rg_env")


def as_typed(value: object) -> str:
    """Return a value as a person would type it in YAML, texts in quotes."""
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)


def similar_words(word: str, known: Iterable[str]) -> list[str]:
    """Return at most three known words that are similar to this one, the most similar first."""
    from difflib import get_close_matches  # for mistakes only: every command imports this module

    return get_close_matches(word, list(known), n=3, cutoff=_SIMILAR)


def did_you_mean(word: str, known: Iterable[str], otherwise: str) -> str:
    """`; did you mean a or b?` where known words are similar, else `; <otherwise>`."""
    near = similar_words(word, known)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    return f"; {otherwise}"
