"""Settings by their dotted names: which exist, and their values."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rg_env.config import PREFIX, check_value
from rg_env.errors import ConfigError, need
from rg_env.skyrl.checks.other_names import other_name

_SIMILAR = 0.8
"""Likeness of the last parts of two names, from 0 to 1, from which one may be meant for the other."""
_CLOSE = 0.05
_MOST = 3


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting as its dataclass declares it.

    Attributes:
        kind: its type.
        limits: as `rg_env.config.check_value` takes them.
        free_form: whether it may have parts with any names.
    """

    kind: Any
    limits: Mapping[str, Any]
    free_form: bool


def value_of(cfg: Any, setting: str) -> Any:
    """The value of a dotted setting, such as `trainer.policy.model.path`."""
    return functools.reduce(getattr, setting.split("."), cfg)


def require(cfg: Any, setting: str, ok: object, right: str) -> None:
    """Raise `setting=value: right` as a ConfigError unless `ok`."""
    need(ok, setting, value_of(cfg, setting), right)


def check_setting(key: str, value: Any, known: Mapping[str, Setting]) -> None:
    """Check that a setting exists, and its value by type and limits.

    Args:
        key: dotted; may be inside a free-form setting (`….tasks.chain_sum`), where anything is accepted.
        known: every setting of a run by its dotted name.

    Raises:
        ConfigError: one line. For an unknown setting, it names what it stands for elsewhere, or similar ones.
    """
    parts = key.split(".")
    parent = next((name for n in range(1, len(parts)) if (name := ".".join(parts[:n])) in known), None)
    if setting := known.get(key):
        check_value(key, value, setting.kind, setting.limits)
    elif parent:
        if not known[parent].free_form:
            raise ConfigError(f"unknown setting {key!r}; {parent} has no parts")
    elif member := next((name for name in known if name.startswith(f"{key}.")), None):
        if value is not None:  # null leaves out an optional group; SkyRL checks which are
            raise ConfigError(f"{key} is a group of settings; set one of them, such as {member}")
    else:
        listed = f"docs/settings.md lists those of {PREFIX}, and skyrl/train/config/config.py all others"
        raise ConfigError(f"unknown setting {key!r}; {other_name(key, known) or _similar(key, list(known)) or listed}")


def _similar(key: str, known: Sequence[str]) -> str:
    """Asks for at most three settings whose last part is like the key's, those whose whole name is most like it."""
    leaf = key.rpartition(".")[2]
    leaves = {name.rpartition(".")[2] for name in known}
    near = difflib.get_close_matches(leaf, leaves, n=1, cutoff=_SIMILAR)
    likeness = {
        name: difflib.SequenceMatcher(None, key, name).ratio() for name in known if name.rpartition(".")[2] in near
    }
    best = max(likeness.values(), default=0.0)
    found = [name for name in sorted(likeness, key=lambda name: -likeness[name]) if likeness[name] > best - _CLOSE]
    return f"did you mean {' or '.join(found)}?" if 0 < len(found) <= _MOST else ""
