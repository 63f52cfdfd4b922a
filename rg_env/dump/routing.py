"""Selects the file for the text of a group.

Invariant: only base scores count, so that a penalty never turns a solved group into a failed one.

Atropos' two files keep their meaning, in the train phase: a success has any score strictly above the threshold, FAILED
has only scores of exactly 0. Evaluation has a separate file, so that nobody trains on it by accident.
"""

from __future__ import annotations

from dataclasses import dataclass

from rg_env.config import RGDumpConfig
from rg_env.dump.schema import FileKind, GroupRecord, NotKept, Phase, answered
from rg_env.scoring.types import Status


@dataclass(frozen=True, slots=True)
class DumpPolicy:
    """The switches that decide which groups' text is kept. Every group has a line in the ledger.

    Attributes:
        threshold: a train group is a success when any base score is strictly greater; in [0, 1].
    """

    dump_rollouts: bool = True
    dump_failed_rollouts: bool = True
    dump_other_rollouts: bool = False
    dump_eval_rollouts: bool = False
    threshold: float = 0.7

    @classmethod
    def from_config(cls, config: RGDumpConfig) -> DumpPolicy:
        """The switches in the settings."""
        return cls(
            dump_rollouts=config.dump_rollouts,
            dump_failed_rollouts=config.dump_failed_rollouts,
            dump_other_rollouts=config.dump_other_rollouts,
            dump_eval_rollouts=config.dump_eval_rollouts,
            threshold=config.rollout_save_score_threshold,
        )


def route(group: GroupRecord, policy: DumpPolicy) -> tuple[FileKind | None, NotKept | None]:
    """The file for the group's text, or the reason why it is not kept."""
    if not group.rollouts:
        return None, NotKept.NO_ROLLOUTS
    base_scores = [rollout.base_score for rollout in answered(group.rollouts)]
    if not base_scores and all(rollout.status is Status.NO_RESPONSE for rollout in group.rollouts):
        return None, NotKept.NO_RESPONSES
    if group.phase == Phase.EVAL:
        return _if(policy.dump_eval_rollouts, FileKind.EVAL, NotKept.EVAL_OFF)
    if any(score > policy.threshold for score in base_scores):
        return _if(policy.dump_rollouts, FileKind.ROLLOUTS, NotKept.ROLLOUTS_OFF)
    if base_scores and not any(base_scores):
        return _if(policy.dump_failed_rollouts, FileKind.FAILED, NotKept.FAILED_OFF)
    return _if(policy.dump_other_rollouts, FileKind.OTHER, NotKept.OTHER_OFF)


def _if(wanted: bool, kind: FileKind, reason: NotKept) -> tuple[FileKind | None, NotKept | None]:
    return (kind, None) if wanted else (None, reason)
