"""Groups and whole dumps for tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rg_env.base.choices import SOLVED_AT
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import (
    Attempt,
    DumpWriter,
    FileKind,
    GroupRecord,
    Phase,
    RolloutRecord,
    TrainedRecord,
    group_id,
    has_no_signal,
    outcome_of,
    write_manifest,
)
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
        "answer": str(base_score),
        "response_tokens": len(text),
        "stop_reason": "stop",
        "repetition": repetition,
        "policy_version": "3",
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
        "outcome": outcome_of([r.base_score for r in answered(made)], changes.get("solved_at", SOLVED_AT)),
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


def manifest(attempt: int = 1, *, samples: int | None = 2, **rg_dump: Any) -> dict[str, Any]:
    """What a run notes about its start, as far as the record depends on it."""
    settings = {
        "generator": {
            "n_samples_per_prompt": samples,
            "eval_n_samples_per_prompt": samples,
            "zero_reward_on_non_stop": False,
            "sampling_params": {"max_generate_length": 64},
        },
        "environment": {
            "skyrl_gym": {"rg_dump": vars(RGDumpConfig()) | {"scorer": {}, "length_penalty": {}} | rg_dump}
        },
    }
    return {"attempt": attempt, "settings": settings}


def some_groups(attempt: int = 1) -> list[GroupRecord]:
    """Groups for each kind of text file, and one whose text is kept nowhere."""
    failure = rollout(0.0, 1, status=Status.TIMEOUT, raw_score=None, tagged_score=None, detail="5 s")
    scores = [[1.0, 0.0], [0.0, 0.0], [0.3, 0.0], [1.0, 1.0], [violating(0), failure], [0.9, 0.2]]
    made = [
        group(f"{attempt}-{k}", rollouts, attempt=attempt, call=k // 2, step=k // 2 + 1)
        for k, rollouts in enumerate(scores)
    ]
    made.append(group("e", [1.0, 0.5], attempt=attempt, phase="eval", call=3, step=3))
    return made


def write_record(folder: Path, *, attempts: int = 1) -> list[GroupRecord]:
    """A record as runs write it: every kind of file, two batches of some, a manifest; returns its groups."""
    groups = []
    for attempt in range(1, attempts + 1):
        made = some_groups(attempt)
        groups += made
        folder.mkdir(exist_ok=True)
        write_manifest(folder, RUN_ID, Attempt.read(manifest(attempt, dump_eval_rollouts=True, groups_per_file=4)))
        config = RGDumpConfig(dump_other_rollouts=False, groups_per_file=4)
        with DumpWriter(folder, RUN_ID, attempt, config) as writer:
            assert writer.submit(made).result(10)
            for step in (1, 2):
                trained = [TrainedRecord(RUN_ID, attempt, step, g.group_id, 2) for g in made if g.step == step]
                assert writer.submit(trained).result(10)
    return groups
