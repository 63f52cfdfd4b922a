"""From text to verdict: format, guard, scores, worker pool, length penalty.

Invariant: no model output can raise in, hang or crash the calling process.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rg_env.scoring.length import Penalty, group_penalty, length_penalty
from rg_env.scoring.parse import parse_response
from rg_env.scoring.types import AnswerScore, ParsedResponse, Status, Verdict, Violation

if TYPE_CHECKING:
    from rg_env.scoring.sandbox.sandbox import Measure
    from rg_env.scoring.scorer import Scorer, shared_scorer
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

_MODULES = {
    "Measure": "rg_env.scoring.sandbox.sandbox",
    "Scorer": "rg_env.scoring.scorer",
    "sandbox_report": "rg_env.scoring.workers.pool",
    "shared_scorer": "rg_env.scoring.scorer",
}


def __getattr__(name: str) -> Any:
    """Import on first use: reading dumps needs no scorers."""
    if name not in _MODULES:
        raise AttributeError(f"module 'rg_env.scoring' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
