"""Signs of reward hacking in recorded rollouts: `rg-env dumps audit`.

Invariant: a finding concerns one task, states the counts and the groups that it is based on, and describes what was
seen, with possible innocent causes. No finding is based on a single rollout.
"""

from rg_env.analysis.signs.consensus import Consensus
from rg_env.analysis.signs.findings import Finding, Sign
from rg_env.analysis.signs.observed import Coverage
from rg_env.analysis.signs.run import find_signs

__all__ = ["Consensus", "Coverage", "Finding", "Sign", "find_signs"]
