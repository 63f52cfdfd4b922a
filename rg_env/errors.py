"""Errors that the command line shows to users, and helpers to raise them.

Invariant: a message is one line that says what is wrong and how to fix it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from typing import NoReturn


class RGEnvError(Exception):
    """Base of the errors that `rg-env` prints as one line, without a traceback."""

    exit_code = 2


class ConfigError(RGEnvError):
    """A setting, a task name or an option that cannot work. Raised before Ray starts."""


class UnavailableError(ConfigError):
    """Something that a run needs is not on this machine or does not answer: GPUs, a server, a hub.

    The settings may be right: `rg-env train --check` only warns.
    """


class ScorerPoolError(RGEnvError):
    """The scorer processes cannot be started; without them every score would be 0."""


class MissingGroupsError(RGEnvError):
    """A run is over, and groups are missing from its dump, because the disk failed."""

    exit_code = 3


class DumpError(RGEnvError):
    """The dump folder or a dump file cannot be used as requested."""


def wrong_value(setting: str, value: object, right: str) -> str:
    """The one line about a wrong setting.

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
    ok = (
        isinstance(value, int if whole else (int, float))
        and not isinstance(value, bool)
        and at_least <= value <= at_most
        and above < value < below
    )
    limits = {"of at least": at_least, "above": above, "at most": at_most, "below": below}
    bounds = " and ".join(f"{words} {limit}" for words, limit in limits.items() if abs(limit) != math.inf)
    need(ok, setting, value, f"must be a {'whole ' if whole else ''}number {bounds}".rstrip())


def as_typed(value: object) -> str:
    """A value as a person would type it in YAML, texts in quotes."""
    if isinstance(value, enum.Enum):
        value = value.value
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)


def one_line(what: object, limit: int | None = None) -> str:
    """A text, or the message of an exception, as one line of at most `limit` characters that UTF-8 can encode.

    An exception without a message becomes the name of its class.
    """
    text = " ".join(str(what).split())
    if not text and isinstance(what, BaseException):
        text = type(what).__name__
    return text[:limit].encode("utf-8", "replace").decode()


def describe(error: BaseException) -> str:
    """An exception as one line, with its class unless it is a plain assertion."""
    text, name = one_line(error), type(error).__name__
    return text if isinstance(error, AssertionError) or text == name else f"{name}: {text}"


def did_you_mean(word: str, known: Iterable[str], otherwise: str) -> str:
    """`; did you mean a or b?` where known words are similar, else `; <otherwise>`."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else f"; {otherwise}"
