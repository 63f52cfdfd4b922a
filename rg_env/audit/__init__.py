"""`rg-env audit`: attacks on the scorers, as a policy in training might try them.

Invariant: no attack can harm the machine or the process that runs the audit; see `rg_env.audit.sides`.
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
