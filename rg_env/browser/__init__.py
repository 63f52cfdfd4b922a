"""Browsing the groups of a dump in a terminal: an interactive application, or plain text for pipes.

Invariant: model output cannot control the terminal: every text goes through `rg_env.output`.
"""

from rg_env.browser.group_text import Query, group_lines

__all__ = ["Query", "group_lines"]
