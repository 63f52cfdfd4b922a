"""Imports Reasoning Gym without matplotlib, which would take half of the time and is not used.

Reasoning Gym imports cellpylib for one of its tasks, and cellpylib imports matplotlib for its plots. Placeholders stand
for its modules until Reasoning Gym has been imported.

Invariant: any user of matplotlib, be it cellpylib or another thread in the meantime, gets the real one.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

__all__ = ["reasoning_gym"]

_UNUSED = (
    "matplotlib",
    "matplotlib.pyplot",
    "matplotlib.animation",
    "matplotlib.collections",
    "mpl_toolkits",
    "mpl_toolkits.mplot3d",
)
"""What cellpylib imports, each after its package."""


class _Placeholder(ModuleType):
    """A module that is imported when something of it is first used."""

    def __getattr__(self, name: str) -> Any:
        # The import system asks for names such as __path__, and takes an AttributeError for an answer.
        if name.startswith("__"):
            raise AttributeError(name)
        _remove_placeholders()
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def _placeholders() -> Iterator[None]:
    # What has been imported is there to be used.
    if not any(name in sys.modules for name in _UNUSED):
        for name in _UNUSED:
            placeholder = _Placeholder(name)
            sys.modules[name] = placeholder
            package, _, last = name.rpartition(".")
            if package:
                setattr(sys.modules[package], last, placeholder)
        # The only name that cellpylib takes out of a module. It does not use it.
        vars(sys.modules["mpl_toolkits.mplot3d"])["Axes3D"] = None
    try:
        yield
    finally:
        _remove_placeholders()


def _remove_placeholders() -> None:
    for name in _UNUSED:
        if isinstance(sys.modules.get(name), _Placeholder):
            del sys.modules[name]


with _placeholders():
    import reasoning_gym
