"""Access to settings by their dotted names, for the checks."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Sequence
from typing import Any

from rg_env.errors import ConfigError, need


def value_of(cfg: Any, setting: str) -> Any:
    """The value of a dotted setting, such as `trainer.policy.model.path`."""
    return functools.reduce(getattr, setting.split("."), cfg)


def require(cfg: Any, setting: str, ok: object, right: str) -> None:
    """Raise `setting=value: right` as a ConfigError unless `ok`."""
    need(ok, setting, value_of(cfg, setting), right)


def check_key(key: str, known: Sequence[str]) -> None:
    """Refuse an unknown setting, but accept what is inside a free-form one (`….tasks.chain_sum`).

    Raises:
        ConfigError: naming the nearest known setting.
    """
    if any(key == name or key.startswith(f"{name}.") for name in known):
        return
    if member := next((name for name in known if name.startswith(f"{key}.")), None):
        raise ConfigError(f"{key} is a group of settings; set one of them, such as {member}")
    same_leaf = [name for name in known if name.rpartition(".")[2] == key.rpartition(".")[2]]
    nearest = difflib.get_close_matches(key, same_leaf or known, n=1, cutoff=0.0)[0]
    raise ConfigError(f"unknown setting {key!r}; the nearest known one is {nearest!r}")
