"""All detectors over one dump."""

from __future__ import annotations

from rg_env.analysis.signs.consensus import Consensus
from rg_env.analysis.signs.findings import Finding, Sign
from rg_env.analysis.signs.observed import Coverage, observe
from rg_env.analysis.signs.texts import Detector, NearDuplicates, RepeatedAnswers, Tallies
from rg_env.analysis.signs.trends import trend_findings
from rg_env.dump import Dump, FileKind, Phase
from rg_env.dump.run_settings import default_settings, settings_of_attempts


def find_signs(dump: Dump, coverage: Coverage | None = None, consensus: Consensus | None = None) -> list[Finding]:
    """Look for signs of reward hacking in the train phase of a dump, or in a dump that has only evaluations.

    Reads the texts for what the policy wrote, and the ledger (without one, the texts) for trends of scores.

    Args:
        dump: from `open_run`.
        coverage: counts what could be read.
        consensus: sees the groups of all phases.

    Returns:
        findings by task, the most serious sign first.

    Raises:
        NewerSchemaError: a file needs a later version of rg_env.
    """
    detectors: list[Detector] = [RepeatedAnswers(), Tallies(), NearDuplicates()]
    attempts, defaults = settings_of_attempts(dump.runs), default_settings()
    only_eval = {file.kind for file in dump.files_to_read(texts=True)} == {FileKind.EVAL}
    phase = Phase.EVAL if only_eval else Phase.TRAIN
    for group in dump.groups(phase=phase if consensus is None else None):
        config = attempts.get((group.run_id, group.attempt), defaults).config
        observed = list(observe(group, config.prefilled_think, config.format))
        if coverage is not None:
            for one in observed:
                coverage.add(one)
        if observed and consensus is not None:
            consensus.see(observed)
        if observed and group.phase == phase:
            for detector in detectors:
                detector.see(observed)
    found = [finding for detector in detectors for finding in detector.findings()]
    found += trend_findings(dump.scan())
    order = list(Sign)
    return sorted(found, key=lambda finding: (finding.task, order.index(finding.sign)))
