"""Which tasks are drawn, and at which difficulty: decided from what the policy has solved so far.

Invariant: pure. No files, no processes, no SkyRL. Equal seeds and observations give equal draws, in every process.
"""

from rg_env.curriculum.planner import Planner
from rg_env.curriculum.rules import Move
from rg_env.curriculum.solve_rate import GroupFacts, RolloutFacts

__all__ = ["GroupFacts", "Move", "Planner", "RolloutFacts"]
