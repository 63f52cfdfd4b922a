"""From text to verdict: format, guard, scores, worker pool, length penalty.

Invariant: no model output can raise in, hang or crash the calling process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rg_env.base.lazy import exports
from rg_env.scoring.length import Penalty, group_penalty, length_penalty
from rg_env.scoring.parse import parse_response
from rg_env.scoring.types import AnswerScore, ParsedResponse, Status, Verdict, Violation

if TYPE_CHECKING:
    from rg_env.runner.caller_guarded import Guarded, GuardedScore, guarded
    from rg_env.runner.child_sandbox import sandbox_report
    from rg_env.scoring.scorer import Scorer, shared_scorer

__all__ = [
    "AnswerScore",
    "Guarded",
    "GuardedScore",
    "ParsedResponse",
    "Penalty",
    "Scorer",
    "Status",
    "Verdict",
    "Violation",
    "group_penalty",
    "guarded",
    "length_penalty",
    "parse_response",
    "sandbox_report",
    "shared_scorer",
]

# Reading dumps needs no scorers.
_MODULES = {
    "Guarded": "rg_env.runner.caller_guarded",
    "GuardedScore": "rg_env.runner.caller_guarded",
    "guarded": "rg_env.runner.caller_guarded",
    "Scorer": "rg_env.scoring.scorer",
    "sandbox_report": "rg_env.runner.child_sandbox",
    "shared_scorer": "rg_env.scoring.scorer",
}
__getattr__, __dir__ = exports(__name__, _MODULES)
