"""Checks records against the settings of their run. Pure functions that return what does not match.

Invariant: everything that a run writes under its settings passes.
"""

from __future__ import annotations

from collections.abc import Iterator

from rg_env.dump.run_settings import RunSettings
from rg_env.dump.schema import FileKind, GroupRecord, LedgerRecord, Phase, answered, outcome_of
from rg_env.dump.write.routing import DumpPolicy, route


def wrong_numbers(record: GroupRecord | LedgerRecord, settings: RunSettings) -> Iterator[str]:
    """How a group's outcome and size contradict the settings."""
    base_scores = [rollout.base_score for rollout in answered(record.rollouts)]
    outcome = outcome_of(base_scores, settings.config.solved_at)
    if record.outcome is not outcome:
        yield f"`outcome` is {record.outcome}; with solved_at={settings.config.solved_at:g} it would be {outcome}"
    expected = settings.samples.get(Phase(record.phase))
    if expected is not None and len(record.rollouts) != expected:
        yield f"has {len(record.rollouts)} rollouts; the manifest says {expected} for phase {record.phase}"


def wrong_file(group: GroupRecord, kind: FileKind, settings: RunSettings | None) -> str | None:
    """Why the text of a group cannot be in a file of this kind, or None."""
    if settings is None:
        return f"a group of phase {group.phase}" if (group.phase == Phase.EVAL) != (kind is FileKind.EVAL) else None
    right, reason = route(group, DumpPolicy.from_config(settings.config))
    if right is kind:
        return None
    return "by the manifest's settings, it " + (f"belongs to the {right} file" if right else f"is not kept ({reason})")


def wrong_reason(record: LedgerRecord, settings: RunSettings) -> str | None:
    """Why the text of a group cannot be missing for the reason in its ledger line, or None."""
    switch = (record.text_reason or "").removesuffix("_off")
    if not getattr(settings.config, switch, False):
        return None
    return f"`text_reason` is {record.text_reason}, but the manifest has {switch}=true"
