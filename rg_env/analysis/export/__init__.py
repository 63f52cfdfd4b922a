"""Training data sets made from a dump: supervised examples, preference pairs, groups with rewards.

Needs neither torch nor trl nor datasets. What is left out is counted and reported, with the reason.
"""

from rg_env.analysis.export.dpo import Dpo
from rg_env.analysis.export.grpo import Grpo
from rg_env.analysis.export.kinds import Common, Exported, ExportError
from rg_env.analysis.export.left_out import LeftOut, Reason
from rg_env.analysis.export.run import export
from rg_env.analysis.export.sft import Sft
from rg_env.choices import PairBy, PerTask, Think

__all__ = [
    "Common",
    "Dpo",
    "ExportError",
    "Exported",
    "Grpo",
    "LeftOut",
    "PairBy",
    "PerTask",
    "Reason",
    "Sft",
    "Think",
    "export",
]
