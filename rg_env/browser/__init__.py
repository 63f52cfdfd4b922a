"""Browsing the groups of a dump in a terminal, with `rg-env dumps show`.

Invariant: model output cannot control the terminal: every text goes through `rg_env.base.output`.
"""
