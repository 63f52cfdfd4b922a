"""Groups as a run records them: Reasoning Gym items with actual scores and rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import Attempt, Dump, GroupRecord, write_manifest
from rg_env.rollouts.rewards import set_rewards
from rg_env.rollouts.rollout import Rollout
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.scoring import Scorer
from rg_env.tasks import Item
from tests.analysis import reports
from tests.dump.records import RUN_ID, group, rollout

MAX_LENGTH = 64


@cache
def item(task: str) -> Item:
    return Item.from_extra_info(ReasoningGymDataset([task], size=1).row(0)["extra_info"])


def response(answer: object) -> str:
    return f"<think>so</think> <answer>{answer}</answer>"


def recorded(
    scorer: Scorer,
    task: str,
    responses: Sequence[str],
    config: RGDumpConfig,
    uid: object = 0,
    one: Item | None = None,
    **changes: Any,
) -> GroupRecord:
    """The group of these responses, to an item of the task; their lengths in tokens are 16, 32, 48 and so on."""
    one = one or item(task)
    verdicts = [
        scorer.score_response(one.entry, text, one.config, config.prefilled_think, config.format) for text in responses
    ]
    judged = [Rollout(verdict, 16 * (k + 1), "stop" if k != 4 else "length") for k, verdict in enumerate(verdicts)]
    penalize = changes.get("phase") != "eval"
    set_rewards(judged, config, max_length=MAX_LENGTH, penalize=penalize, zero_on_non_stop=True)
    rollouts = [
        rollout(
            verdict.scored.score,
            k,
            conversation=[{"role": "user", "content": "?"}, {"role": "assistant", "content": text}],
            score=one_judged.score,
            reward=one_judged.reward,
            raw_score=verdict.scored.raw,
            tagged_score=verdict.scored.tagged,
            violation=verdict.parsed.violation or "",
            status=verdict.scored.status,
            detail=verdict.scored.detail,
            answer=verdict.parsed.answer or "",
            response_tokens=one_judged.response_tokens,
            stop_reason=one_judged.stop_reason,
            penalty_factor=one_judged.penalty_factor,
        )
        for k, (text, verdict, one_judged) in enumerate(zip(responses, verdicts, judged, strict=True))
    ]
    values = {"task": task, "entry": one.entry_json, "task_config": one.config_json, "item": one.id}
    values |= {"level": one.level, "complexity": one.complexity}
    return group(uid, rollouts, **values | changes)


def dump_of(folder: Path, groups: Sequence[GroupRecord], config: RGDumpConfig | None, **generator: Any) -> Dump:
    """A record of these groups, with a manifest where a config is given."""
    if config is not None:
        given = {"sampling_params": {"max_generate_length": MAX_LENGTH}, "zero_reward_on_non_stop": True} | generator
        settings = {"generator": given, "environment": {"skyrl_gym": {"rg_dump": asdict(config)}}}
        folder.mkdir(parents=True, exist_ok=True)
        write_manifest(folder, RUN_ID, Attempt(attempt=1, settings=settings))
    return reports.dump_of(folder, groups)
