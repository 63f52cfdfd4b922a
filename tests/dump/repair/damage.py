"""A record of every kind of line, and ways to damage it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rg_env.config import RGDumpConfig
from rg_env.dump import DumpWriter, GroupRecord, TrainedRecord, write_manifest
from rg_env.scoring.types import Status
from tests.dump.records import RUN_ID, group, rollout, violating


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
        write_manifest(folder, RUN_ID, manifest(attempt, dump_eval_rollouts=True, groups_per_file=4))
        config = RGDumpConfig(dump_other_rollouts=False, groups_per_file=4)
        writer = DumpWriter(folder, RUN_ID, attempt, config)
        with writer:
            assert writer.submit(made).result(10)
            for step in (1, 2):
                trained = [TrainedRecord(RUN_ID, attempt, step, g.group_id, 2) for g in made if g.step == step]
                assert writer.submit(trained).result(10)
    return groups
