"""Test groups for writing and reading."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rg_env.dump import FileKind, GroupRecord, Phase, RolloutRecord, group_id, has_no_signal, outcome_of
from rg_env.dump.files import list_files
from rg_env.dump.schema import answered
from rg_env.scoring.types import Status, Violation

RUN_ID = "20261121-053012-ab12"


def rollout(base_score: float = 1.0, repetition: int = 0, **changes: Any) -> RolloutRecord:
    """A rollout with this base score and no penalty."""
    text = f"<think>{repetition}</think><answer>{base_score}</answer>"
    values: dict[str, Any] = {
        "conversation": [{"role": "user", "content": "What?"}, {"role": "assistant", "content": text}],
        "score": base_score,
        "reward": base_score,
        "base_score": base_score,
        "raw_score": base_score,
        "tagged_score": 0.0,
        "violation": "",
        "status": Status.OK,
        "detail": "",
        "answer": str(base_score),
        "response_tokens": len(text),
        "stop_reason": "stop",
        "truncated": False,
        "penalty_factor": 1.0,
        "repetition": repetition,
        "policy_version": "3",
        "normalized": False,
    }
    return RolloutRecord(**(values | changes))


def violating(repetition: int = 0, violation: Violation = Violation.NO_ANSWER) -> RolloutRecord:
    return rollout(0.0, repetition, raw_score=None, tagged_score=None, violation=violation, answer="")


def unanswered(repetition: int = 0) -> RolloutRecord:
    """A rollout whose request failed."""
    failed = {"status": Status.NO_RESPONSE, "detail": "500", "answer": "", "raw_score": None, "tagged_score": None}
    conversation = [{"role": "user", "content": "What?"}, {"role": "assistant", "content": ""}]
    changes = {"conversation": conversation, "response_tokens": None, "stop_reason": ""}
    return rollout(0.0, repetition, **failed, **changes)


def group(
    uid: object = 0, rollouts: Sequence[RolloutRecord] | Sequence[float] = (1.0, 0.0), **changes: Any
) -> GroupRecord:
    """A group of these rollouts, or of rollouts with these base scores."""
    made = [r if isinstance(r, RolloutRecord) else rollout(r, k) for k, r in enumerate(rollouts)]
    values: dict[str, Any] = {
        "item_id": changes.get("task", "chain_sum"),
        "item": f"item-{uid}",
        "run_id": RUN_ID,
        "attempt": 1,
        "phase": Phase.TRAIN,
        "step": 1,
        "call": 0,
        "uid": str(uid),
        "task": "chain_sum",
        "task_config": '{"max_terms": 2}',
        "level": '{"terms": 2}',
        "entry": '{"question": "What?", "answer": "1"}',
        "outcome": outcome_of([r.base_score for r in answered(made)]),
        "no_signal": has_no_signal([r.reward for r in answered(made)]),
        "rollouts": made,
    } | changes
    values["phase"] = Phase(values["phase"])
    name = group_id(values["run_id"], values["attempt"], values["phase"], values["call"], values["uid"])
    return GroupRecord(**({"group_id": name} | values))


def lines_of(folder: Path, kind: FileKind) -> list[dict[str, Any]]:
    """All lines of a kind in a folder, in order, finished batches and the one under way alike. Strict."""
    files = [file for file in list_files(folder) if file.kind is kind]
    return [json.loads(line) for file in files for line in file.path.read_bytes().splitlines()]


def uids(folder: Path, kind: FileKind = FileKind.LEDGER) -> list[str]:
    return [line["uid"] for line in lines_of(folder, kind)]


def names(folder: Path) -> set[str]:
    """The files of a dump, without the prefix and the run id that they share."""
    return {path.name.replace("reasoning_gym_environment_", "").replace(f"_{RUN_ID}", "") for path in folder.iterdir()}
