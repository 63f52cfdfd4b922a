"""Copies of upstream code with other globals, so that one instance behaves differently.

Invariant: no module, class or function of upstream is changed; every result is a copy.
"""

from __future__ import annotations

import types
from typing import Any


def rebind(function: Any, scope: dict[str, Any]) -> Any:
    """A copy of the function that looks up its globals in `scope`."""
    copied = types.FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, function.__closure__
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied


def with_globals(function: Any, **replaced: Any) -> Any:
    """A copy of the function with some of its globals replaced."""
    return rebind(function, {**function.__globals__, **replaced})


def override(dataset: Any, **methods: Any) -> None:
    """Replace methods of this one instance; unlike plain attributes they survive `copy.copy`."""
    cls = type(dataset)
    dataset.__class__ = type(cls.__name__, (cls,), {"__module__": cls.__module__, **methods})


def print_nothing(*_: object, **__: object) -> None:
    """Replaces `print`."""
