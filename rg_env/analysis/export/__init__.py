"""Data sets to train on, made from a record: supervised examples, preference pairs, groups with rewards.

Light: needs neither torch nor trl nor datasets. What was left out, and why, is counted and told with the data.
"""

from rg_env.analysis.export.dpo import Dpo
from rg_env.analysis.export.grpo import Grpo
from rg_env.analysis.export.kinds import Common, ExportError, PerTask, Think
from rg_env.analysis.export.left_out import LeftOut, Reason
from rg_env.analysis.export.run import Exported, export
from rg_env.analysis.export.sft import Sft

__all__ = [
    "Common",
    "Dpo",
    "ExportError",
    "Exported",
    "Grpo",
    "LeftOut",
    "PerTask",
    "Reason",
    "Sft",
    "Think",
    "export",
]
