"""Programs that save a row for each rollout: TRL (`log_completions`), SkyRL (`dump_eval_results`), verl
(`rollout_data_dir`, `validation_data_dir`).

SkyRL and verl save the prompt as the text that the model was given, chat template included: it is one message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rg_env.dump import Phase
from rg_env.errors import ConfigError
from rg_env.formats.importing import (
    Row,
    answer_entry,
    as_count,
    as_messages,
    as_number,
    as_text,
    scored_rollout,
)
from rg_env.tasks import Item

_NO_REWARDS = ("step", "advantage", "mask", "temperature")


def trl_rows(row: Mapping[str, Any], path: Path, place: int) -> Iterator[Row]:
    """The rollout of a row of `completions_*.parquet`, whose reward is the only column of numbers beside step and
    advantage: how several rewards were weighted is not saved.
    """
    if "prompt" not in row or "completion" not in row:
        raise ValueError("has no `prompt` and `completion`")
    numbers = [name for name, cell in row.items() if isinstance(cell, float) and name not in _NO_REWARDS]
    reward = as_number(row[numbers[0]], numbers[0]) if len(numbers) == 1 else float("nan")
    prompt, completion = (
        as_messages([{"role": role, "content": row[name]}] if isinstance(row[name], str) else row[name])
        for name, role in (("prompt", "user"), ("completion", "assistant"))
    )
    turns = sum(message["role"] == "assistant" for message in completion)
    yield Row(scored_rollout(prompt + completion, reward, turns=turns), {"step": as_count(row.get("step"))})


def skyrl_rows(row: Mapping[str, Any], path: Path, place: int) -> Iterator[Row]:
    """The rollout of a line of `dumped_evals/global_step_N_evals/DATA_SOURCE.jsonl`."""
    if path.name == "aggregated_results.jsonl":
        return
    if "input_prompt" not in row or "output_response" not in row:
        raise ValueError("has no `input_prompt` and `output_response`")
    rewards = row.get("score")
    each = (rewards or [None]) if isinstance(rewards, list) else [rewards]
    reason = as_text(row.get("stop_reason"))
    rollout = scored_rollout(
        _one_turn(row["input_prompt"], row["output_response"]),
        sum(as_number(reward, "score") for reward in each),
        stop_reason=reason,
        truncated=reason == "length",
        turns=1,
    )
    step = re.fullmatch(r"global_step_(\d{1,18})_evals", path.parent.name)
    extras = row.get("env_extras")
    extras = extras if isinstance(extras, Mapping) else {}
    facts = {"phase": Phase.EVAL, "step": int(step[1]) if step else None, "task": as_text(row.get("data_source"))}
    facts |= item_facts(extras.get("extra_info")) or {"entry": _ground_truth(extras)}
    yield Row(rollout, facts, as_text(facts.get("item")))


def verl_rows(row: Mapping[str, Any], path: Path, place: int) -> Iterator[Row]:
    """The rollout of a line of `STEP.jsonl`. A newer verl saves `uid`: question, sample, turn."""
    if not {"input", "output", "score"} <= row.keys():
        raise ValueError("has no `input`, `output` and `score`")
    uid = as_text(row.get("uid"))
    rollout = scored_rollout(_one_turn(row["input"], row["output"]), as_number(row["score"], "score"), turns=1)
    facts = {"step": as_count(row.get("step")), "entry": answer_entry(row.get("gts"))}
    yield Row(rollout, facts, re.sub(r"_\d+_\d+$", "", uid))


def item_facts(extra_info: object) -> dict[str, Any]:
    """The values of a group whose question is one of our rows; none if it is another."""
    try:
        item = Item.from_extra_info(extra_info)
    except (ConfigError, OverflowError, RecursionError):
        return {}
    names = ("item", "task", "entry", "task_config", "level")
    values = (item.id, item.task, item.entry_json, item.config_json, item.level)
    if not all(isinstance(value, str) for value in values):
        return {}
    return {**dict(zip(names, values, strict=True)), "complexity": item.complexity}


def _one_turn(prompt: object, response: object) -> list[dict[str, str]]:
    if not isinstance(prompt, str) or not isinstance(response, str):
        raise ValueError("prompt or response is not a string")
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]


def _ground_truth(extras: Mapping[str, Any]) -> str:
    specs = [extras.get(name) for name in ("reward_spec", "reward_model")]
    return answer_entry(next((spec.get("ground_truth") for spec in specs if isinstance(spec, Mapping)), None))
