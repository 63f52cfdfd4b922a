"""Analysis of dumps. Needs neither torch nor ray nor skyrl."""

from rg_env.analysis.compare import compare, flips
from rg_env.analysis.pass_at_k import pass_at_k
from rg_env.analysis.stats import STATISTICS, measure, statistics

__all__ = ["STATISTICS", "compare", "flips", "measure", "pass_at_k", "statistics"]
