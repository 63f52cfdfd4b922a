"""`rg-env audit`: attacks on the scorers, as a policy in training might try them."""

from rg_env.audit.attacks import Attack, Kind, attacks
from rg_env.audit.report import render, verdict
from rg_env.audit.run import Audit, Hit, Hole, TaskAudit, run_audit

__all__ = [
    "Attack",
    "Audit",
    "Hit",
    "Hole",
    "Kind",
    "TaskAudit",
    "attacks",
    "render",
    "run_audit",
    "verdict",
]
