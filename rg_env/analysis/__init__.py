"""Analysis of dumps. Needs neither torch nor ray nor skyrl."""

from rg_env.analysis.comparison import compare, flips
from rg_env.analysis.estimates import pass_at_k
from rg_env.analysis.stats import STATISTICS, counts, measure, statistics

__all__ = ["STATISTICS", "compare", "counts", "flips", "measure", "pass_at_k", "statistics"]
