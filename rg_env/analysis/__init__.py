"""Analysis of dumps. Needs neither torch nor ray nor skyrl."""

from rg_env.analysis.compare import compare
from rg_env.analysis.pass_at_k import pass_at_k, pass_hat_k
from rg_env.analysis.sample import Sample, sample_of
from rg_env.analysis.stats import statistics
from rg_env.analysis.tables import headline, render_comparison, render_details, render_table
from rg_env.analysis.where import ConditionError, parse_conditions

__all__ = [
    "ConditionError",
    "Sample",
    "compare",
    "headline",
    "parse_conditions",
    "pass_at_k",
    "pass_hat_k",
    "render_comparison",
    "render_details",
    "render_table",
    "sample_of",
    "statistics",
]
