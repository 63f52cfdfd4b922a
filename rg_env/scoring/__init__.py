"""From text to verdict: format, guard, scores, worker pool, length penalty.

Invariant: no model output can raise in, hang or crash the calling process.
"""

from rg_env.scoring.length import Penalty, group_penalty, length_penalty
from rg_env.scoring.parse import parse_response
from rg_env.scoring.sandbox.sandbox import Measure
from rg_env.scoring.scorer import Scorer, shared_scorer
from rg_env.scoring.types import AnswerScore, ParsedResponse, Status, Verdict, Violation
from rg_env.scoring.workers.pool import sandbox_report

__all__ = [
    "AnswerScore",
    "Measure",
    "ParsedResponse",
    "Penalty",
    "Scorer",
    "Status",
    "Verdict",
    "Violation",
    "group_penalty",
    "length_penalty",
    "parse_response",
    "sandbox_report",
    "shared_scorer",
]
