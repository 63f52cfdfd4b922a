"""Fixed sets of questions to evaluate on, and results that others published for them.

Imports no torch, Ray or SkyRL.
"""

from rg_env.suites.suite import BUILT_IN, Suite, load_suite

__all__ = ["BUILT_IN", "Suite", "load_suite"]
