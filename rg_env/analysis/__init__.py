"""Analysis of dumps. Needs neither torch nor ray nor skyrl."""

from rg_env.analysis.compare import compare, flips
from rg_env.analysis.comparison_table import render_comparison
from rg_env.analysis.pass_at_k import pass_at_k, pass_hat_k
from rg_env.analysis.sample import Sample, sample_of
from rg_env.analysis.select import select
from rg_env.analysis.stats import statistics
from rg_env.analysis.tables import headline, render_details, render_runs, render_table, speed
from rg_env.analysis.where import ConditionError, parse_conditions

__all__ = [
    "ConditionError",
    "Sample",
    "compare",
    "flips",
    "headline",
    "parse_conditions",
    "pass_at_k",
    "pass_hat_k",
    "render_comparison",
    "render_details",
    "render_runs",
    "render_table",
    "sample_of",
    "select",
    "speed",
    "statistics",
]
