"""Names of a package that are imported on first use, so that importing the package stays cheap."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def exports(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package.

    Args:
        package: its full name.
        modules: name → the module that has it, or that it is.
    """

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(modules[name])
        if modules[name] == f"{package}.{name}":
            return module
        return getattr(module, name)

    def names() -> list[str]:
        own = vars(sys.modules[package])
        dunders = [name for name in own if name.startswith("__")]
        # Not what the package itself has imported.
        return sorted([*own["__all__"], *dunders])

    return find, names
