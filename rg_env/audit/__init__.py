"""`rg-env audit`: attack the scorers as a policy under training would, and see what holds.

Invariant: nothing that is tried here can hurt the machine or the process that tries it; `rg_env.audit.sides` says how.
"""

from rg_env.audit.payloads import ALL, Kind, Payload, payloads_for
from rg_env.audit.probes import Finding, Hole
from rg_env.audit.report import markdown, render, sandbox_lines, verdict
from rg_env.audit.run import Audit, TaskAudit, run_audit

__all__ = [
    "ALL",
    "Audit",
    "Finding",
    "Hole",
    "Kind",
    "Payload",
    "TaskAudit",
    "markdown",
    "payloads_for",
    "render",
    "run_audit",
    "sandbox_lines",
    "verdict",
]
