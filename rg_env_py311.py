"""Lets SkyRL 0.3.0 be imported on Python 3.11, in every process of this environment; does nothing from 3.12 on.

`skyrl.tinker.types` hands a `typing.TypedDict` to pydantic, which refuses it before Python 3.12 and asks for
`typing_extensions.TypedDict`. `rg_env_py311.pth` imports this module when an interpreter starts, because Ray's
workers import SkyRL before they see any code of ours. The module costs one object on `sys.meta_path` until
`skyrl.tinker.types` is imported; then, and only while that one module is executed, `typing.TypedDict` is the
other class. Nothing here may raise: a fault would break every interpreter of the environment.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing itself is not imported here: it costs more than all the rest
if TYPE_CHECKING:
    from typing import Any

_TARGET = "skyrl.tinker.types"


class _Finder:
    """Finds `skyrl.tinker.types` as the other finders do, and wraps its execution."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        if name != _TARGET:
            return None
        for finder in sys.meta_path:
            find = None if finder is cls else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                if spec.loader is not None:
                    _wrap(spec.loader)
                return spec
        return None


def _wrap(loader: Any) -> None:
    """Make this loader, made for this one import, execute its module with the TypedDict that pydantic accepts."""
    execute = getattr(loader, "exec_module", None)
    if execute is None or not hasattr(loader, "__dict__"):
        return  # no loader that we know: SkyRL's own error is the honest one

    def exec_module(module: Any) -> Any:
        import typing

        try:
            from typing_extensions import TypedDict
        except ImportError:
            return execute(module)
        original, typing.TypedDict = typing.TypedDict, TypedDict
        try:
            return execute(module)
        finally:
            typing.TypedDict = original

    loader.exec_module = exec_module


if sys.version_info < (3, 12) and _Finder not in sys.meta_path:
    sys.meta_path.insert(0, _Finder)
