"""The same upstream code under other names: how an instance of ours comes to differ while upstream stays as it is.

Invariant: no module, class or function of upstream is changed; what comes back is a copy.
"""

from __future__ import annotations

import types
from typing import Any


def rebind(function: Any, scope: dict[str, Any]) -> Any:
    """The same code, looking its global names up in `scope`."""
    copied = types.FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, function.__closure__
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied


def with_globals(function: Any, **replaced: Any) -> Any:
    """The same function, for which some global names mean something else."""
    return rebind(function, {**function.__globals__, **replaced})


def override(dataset: Any, **methods: Any) -> None:
    """Give this one instance other methods; unlike plain attributes they follow `copy.copy`."""
    cls = type(dataset)
    dataset.__class__ = type(cls.__name__, (cls,), {"__module__": cls.__module__, **methods})


def say_nothing(*_: object, **__: object) -> None:
    """Stands for `print`."""
