"""Analysis of dumps. Needs neither torch nor ray nor skyrl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rg_env.base.lazy import exports

if TYPE_CHECKING:
    from rg_env.analysis.comparison import compare, flips
    from rg_env.analysis.estimates import pass_at_k
    from rg_env.analysis.stats import STATISTICS, counts, measure, statistics

__all__ = ["STATISTICS", "compare", "counts", "flips", "measure", "pass_at_k", "statistics"]

# Statistics need no comparison, and a sign or an export needs neither.
_MODULES = {
    "STATISTICS": "rg_env.analysis.stats",
    "compare": "rg_env.analysis.comparison",
    "counts": "rg_env.analysis.stats",
    "flips": "rg_env.analysis.comparison",
    "measure": "rg_env.analysis.stats",
    "pass_at_k": "rg_env.analysis.estimates",
    "statistics": "rg_env.analysis.stats",
}
__getattr__, __dir__ = exports(__name__, _MODULES)
