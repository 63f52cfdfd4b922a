"""Difficulty: levels that follow from what the policy has solved so far, and batches that hold the mix.

Invariant: pure. No files, no processes, no SkyRL. Equal seeds and observations give equal draws, in every process.
"""

from rg_env.curriculum.controller import Controller, check_difficulty
from rg_env.curriculum.rules import Move
from rg_env.curriculum.solve_rate import ObservedGroup, Tally, tally

__all__ = ["Controller", "Move", "ObservedGroup", "Tally", "check_difficulty", "tally"]
