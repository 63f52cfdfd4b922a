"""A record as one HTML file: figures, charts and a browser of groups, for whoever has no terminal at hand.

Invariant: the file is complete (no network, opens from disk), the same bytes come from the same record, and nothing a
model wrote is ever markup or code: texts travel packed and are put on the page as text.
"""

from rg_env.analysis.report.build import build_report, write_report

__all__ = ["build_report", "write_report"]
