"""All detectors over one record."""

from __future__ import annotations

from collections.abc import Callable

from rg_env.analysis.hacking.findings import Finding, Sign
from rg_env.analysis.hacking.observed import observe
from rg_env.analysis.hacking.texts import Detector, NearDuplicates, RepeatedAnswers, Tallies
from rg_env.analysis.hacking.trends import trend_findings
from rg_env.dump import Dump, Phase


def find_signs(dump: Dump, progress: Callable[[int], None] = lambda groups: None) -> list[Finding]:
    """Look for signs of reward hacking in the train phase of a record.

    Texts are read for what the policy wrote, the ledger for how scores went (texts again, for want of one).

    Args:
        dump: what `open_run` found.
        progress: told how many groups have been read.

    Returns:
        findings by task, the gravest sign first.

    Raises:
        NewerSchemaError: a file needs a later version of rg_env.
    """
    detectors: list[Detector] = [RepeatedAnswers(), Tallies(), NearDuplicates()]
    prefilled = {run.run_id: _prefilled_think(run.manifest) for run in dump.runs}
    for number, group in enumerate(dump.groups(phase=Phase.TRAIN), 1):
        observed = list(observe(group, prefilled.get(group.run_id, False)))
        if observed:
            for detector in detectors:
                detector.see(observed)
        progress(number)
    found = [finding for detector in detectors for finding in detector.findings()]
    found += trend_findings(dump.ledger_frame())
    order = list(Sign)
    return sorted(found, key=lambda finding: (finding.task, order.index(finding.sign)))


def _prefilled_think(manifest: object) -> bool:
    """Whether the run's prompts opened `<think>`, as its manifest has it."""
    found = manifest
    for key in ("settings", "environment", "skyrl_gym", "rg_dump", "prefilled_think"):
        found = found.get(key) if isinstance(found, dict) else None
    return found is True
