"""A dump as one HTML file: statistics, charts and a browser of groups.

Invariant: the file is self-contained (it opens from disk, without network), the same dump gives the same bytes, and
model output is never treated as markup or code: texts are compressed data that the page inserts as text nodes.
"""

from rg_env.analysis.report.build import build_report, write_report

__all__ = ["build_report", "write_report"]
