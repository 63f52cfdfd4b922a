"""Browsing the groups of a record in a terminal: an application for people, plain text for pipes.

Invariant: what a model wrote is shown, never obeyed: every text goes through `rg_env.sanitize`.
"""

from rg_env.browser.plain import print_groups
from rg_env.browser.query import Query

__all__ = ["Query", "print_groups"]
