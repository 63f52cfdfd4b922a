"""Any Python function in processes that can be killed.

Invariant: the standard library only, and nothing of the package around it. README.md says how one job runs.
"""

from __future__ import annotations

from .caller_guarded import Guarded, GuardedScore, guarded
from .failures import ConfigError, Failure, ScorerPoolError

__all__ = ["ConfigError", "Failure", "Guarded", "GuardedScore", "ScorerPoolError", "guarded"]
