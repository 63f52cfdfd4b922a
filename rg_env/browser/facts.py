"""The rollouts of a group from best to worst, and one-line summaries."""

from __future__ import annotations

from collections.abc import Mapping

from rg_env.analysis.stats import SOLVED_AT
from rg_env.config import RGDumpConfig
from rg_env.dump import Dump, GroupRecord, Phase, RolloutRecord
from rg_env.dump.runs import settings_of_attempts
from rg_env.dump.schema import RG_DUMP
from rg_env.scoring.types import Status


def ranked(group: GroupRecord) -> list[RolloutRecord]:
    """Best first: by base score, score, absence of a violation, order of sampling.

    Scores that are NaN come last.
    """

    def key(rollout: RolloutRecord) -> tuple[float, ...]:
        numbers = [-number if number == number else 1.0 for number in (rollout.base_score, rollout.score)]
        return (*numbers, rollout.violation != "", rollout.repetition)

    return sorted(group.rollouts, key=key)


def place_of(rank: int, count: int) -> str:
    """The name of a position in `ranked`, from 0."""
    return "best" if rank == 0 else "worst" if rank == count - 1 else f"number {rank + 1}"


def prompt(group: GroupRecord) -> list[tuple[str, str]]:
    """Roles and contents of the messages before the response."""
    if not group.rollouts:
        return []
    return [(message["role"], message["content"]) for message in group.rollouts[0].prompt]


def thresholds(dump: Dump) -> dict[tuple[str, int], float]:
    """The `rollout_save_score_threshold` of each attempt that a manifest describes, by run id and attempt."""
    attempts = settings_of_attempts(dump.runs)
    return {attempt: settings.config.rollout_save_score_threshold for attempt, settings in attempts.items()}


def group_facts(group: GroupRecord, known: Mapping[tuple[str, int], float]) -> str:
    """The origin of a group and its outcome.

    Args:
        known: see `thresholds`.
    """
    expected = group.expected_answer
    best = max((rollout.base_score for rollout in group.rollouts), default=0.0)
    solved_at = SOLVED_AT if group.solved_at is None else group.solved_at
    threshold = known.get((group.run_id, group.attempt), RGDumpConfig.rollout_save_score_threshold)
    is_above = group.phase == Phase.TRAIN and best > threshold
    facts = [
        f"step {'–' if group.step is None else group.step}",
        group.phase,
        group.task,
        *([] if group.environment in (RG_DUMP, group.task) else [group.environment]),
        f"{len(group.rollouts)} rollouts",
        group.outcome.value,
        *(
            [f"{'above the threshold' if is_above else 'partial credit only'}, none solved"]
            if 0 < best < solved_at
            else []
        ),
        *(["no signal"] if group.no_signal else []),
        *([f"baseline {group.baseline:.3g}"] if group.baseline else []),
        *([] if expected is None else [f"expected {expected}"]),
    ]
    return " · ".join(facts)


def rollout_facts(rollout: RolloutRecord, baseline: float = 0.0) -> str:
    """The numbers of a rollout.

    Args:
        baseline: of its group.
    """
    facts = [f"base {rollout.base_score:.3g}"]
    if rollout.raw_score is not None and rollout.tagged_score is not None:
        facts.append(f"raw {rollout.raw_score:.3g}, tagged {rollout.tagged_score:.3g}")
        if rollout.base_score != max(rollout.raw_score, rollout.tagged_score):
            facts[0] += f" (above the baseline {baseline:.3g})" if baseline else " (of the raw score alone)"
    if rollout.penalty_factor != 1:
        facts.append(f"penalty × {rollout.penalty_factor:.3g} = {rollout.score:.3g}")
    facts.append(f"reward {rollout.reward:.3g}")
    if rollout.response_tokens is not None:
        facts.append(f"{rollout.response_tokens} tokens")
    if rollout.turns is not None:
        facts.append("1 turn" if rollout.turns == 1 else f"{rollout.turns} turns")
    if rollout.truncated:
        facts.append("cut off")
    if rollout.violation:
        facts.append(rollout.violation)
    if rollout.status is not Status.OK:
        facts.append(f"{rollout.status.value}: {rollout.detail}" if rollout.detail else rollout.status.value)
    return " · ".join(facts)
