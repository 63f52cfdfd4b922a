"""Statistics over what runs have recorded. Light: needs neither torch nor ray nor skyrl."""

from rg_env.analysis.stats import render_table, statistics

__all__ = ["render_table", "statistics"]
