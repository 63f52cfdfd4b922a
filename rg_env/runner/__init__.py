"""Any Python function in processes that can be killed.

Invariant: the standard library only, and nothing of the package around it. README.md says how one job runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .caller_guarded import Guarded, GuardedScore, guarded
    from .failures import ConfigError, Failure, ScorerPoolError

__all__ = ["ConfigError", "Failure", "Guarded", "GuardedScore", "ScorerPoolError", "guarded"]


def __getattr__(name: str) -> Any:
    """Import a name on first use.

    The server imports this package, too, but never the caller's side. With that and its asyncio the server would be
    twice as large, and each fork would take twice as long.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import caller_guarded, failures

    return getattr(failures if hasattr(failures, name) else caller_guarded, name)
