"""Signs of reward hacking in what a policy did: `rg-env dumps audit`.

Invariant: a finding is about one task, rests on counts that it states and on groups that it names, and says in plain
words what was seen and how else it may have come about. No detector looks at a single rollout: everybody is lucky once.
"""

from rg_env.analysis.signs.findings import Finding, Sign
from rg_env.analysis.signs.run import find_signs

__all__ = ["Finding", "Sign", "find_signs"]
