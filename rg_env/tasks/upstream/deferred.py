"""Stand-ins for modules that a package imports and rarely uses.

Invariant: what is imported from a stand-in behaves like the original, which is imported when it is first used.
Not covered: calls of what was imported by name, and other threads that use the same modules while they are deferred.
"""

from __future__ import annotations

import pkgutil
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _StandIn(types.ModuleType):
    """Stands for a module, or for what is imported from one."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        path = f"{self.__name__}.{name}"
        if sys.modules.get(self.__name__) is self:  # it is being imported, not used
            return sys.modules.get(path) or _StandIn(path)
        return pkgutil.resolve_name(path)


@contextmanager
def deferred(*modules: str) -> Iterator[None]:
    """Imports in this block get stand-ins for these modules, unless one of them is imported already.

    Args:
        modules: packages and their submodules.
    """
    if any(name in sys.modules for name in modules):
        yield
        return
    sys.modules.update({name: _StandIn(name) for name in modules})
    try:
        yield
    finally:
        for name in modules:
            sys.modules.pop(name)
