"""Programs that save a row for each rollout: TRL (`log_completions`), SkyRL (`dump_eval_results`), verl
(`rollout_data_dir`, `validation_data_dir`); and Atropos, which saves one for each group.

SkyRL and verl save the prompt as the text that the model was given, chat template included: it is one message.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rg_env.dump import GroupRecord, Phase
from rg_env.dump.files import parse_name
from rg_env.formats.records import answer_entry, as_messages, get, get_objects, get_reward, item_facts, one_rollout

_NO_REWARDS = ("step", "advantage", "mask", "temperature")


def trl_rows(row: dict[str, Any], path: Path, place: int) -> Iterator[GroupRecord]:
    """Read the rollout of a row of `completions_*.parquet`, whose reward is the only column of numbers beside step and
    advantage: how several rewards were weighted is not saved.
    """
    # A null is a reward of this row that is unknown: `_table` has left out the nulls of all other columns.
    rewards = [name for name, cell in row.items() if isinstance(cell, float | None) and name not in _NO_REWARDS]
    reward = get_reward(row, rewards[0]) if len(rewards) == 1 else math.nan
    prompt = _trl_messages(row, "prompt", "user")
    completion = _trl_messages(row, "completion", "assistant")
    turns = sum(message["role"] == "assistant" for message in completion)
    yield one_rollout(prompt + completion, reward, {"phase": Phase.TRAIN, "step": row.get("step")}, turns=turns)


def _trl_messages(row: dict[str, Any], name: str, role: str) -> list[dict[str, Any]]:
    """Return the messages of a column: TRL saves a plain prompt as a text, one of a chat as a list."""
    if isinstance(row[name], str):
        return [{"role": role, "content": row[name]}]
    return as_messages(get_objects(row, name))


def skyrl_rows(row: dict[str, Any], path: Path, place: int) -> Iterator[GroupRecord]:
    """Read the rollout of a line of `dumped_evals/global_step_N_evals/DATA_SOURCE.jsonl`."""
    if path.name == "aggregated_results.jsonl":  # it has means of the other files, no rollouts
        return
    # A score is a number, or a list of numbers, whose sum is the reward.
    rewards = row.get("score")
    each = rewards if isinstance(rewards, list) else [rewards]
    step = re.fullmatch(r"global_step_(\d{1,18})_evals", path.parent.name)
    facts = {"phase": Phase.EVAL, "step": int(step[1]) if step else None, "task": row.get("data_source")}
    extras = get(row, "env_extras", dict[str, Any]) or {}
    spec = extras.get("reward_spec") or extras.get("reward_model")
    facts["entry"] = answer_entry(spec.get("ground_truth") if isinstance(spec, dict) else None)
    facts |= item_facts(extras.get("extra_info"))
    facts["uid"] = facts.get("item")
    reason = row.get("stop_reason")
    conversation = _one_turn(row["input_prompt"], row["output_response"])
    # An empty list is no score: its sum is unknown, not 0.
    reward = sum(get_reward({"score": number}, "score") for number in each or [None])
    yield one_rollout(conversation, reward, facts, stop_reason=reason, truncated=reason == "length", turns=1)


def verl_rows(row: dict[str, Any], path: Path, place: int) -> Iterator[GroupRecord]:
    """Read the rollout of a line of `STEP.jsonl`. A newer verl saves `uid`: question, sample, turn."""
    uid = re.sub(r"_\d+_\d+$", "", str(row.get("uid") or ""))
    facts = {"phase": Phase.TRAIN, "step": row.get("step"), "entry": answer_entry(row.get("gts")), "uid": uid}
    yield one_rollout(_one_turn(row["input"], row["output"]), get_reward(row, "score"), facts, turns=1)


def atropos_rows(line: dict[str, Any], path: Path, place: int) -> Iterator[GroupRecord]:
    """Read the rollouts of a line of Atropos' Reasoning Gym environment: its scores are those after the length penalty.
    Files of one run have its id in their names; groups that were all correct are not in them.
    """
    file = parse_name(path)
    run_id = re.sub(r"[^\w.-]", "-", path.name.partition(".jsonl")[0] if file is None else file.run_id)
    group = {"phase": Phase.TRAIN, "run_id": run_id, "task": line["item_id"], "uid": f"{path.name}:{place}"}
    rollouts = get_objects(line, "rollouts")
    if not rollouts or any(rollout.get("conversation") is None for rollout in rollouts):
        raise ValueError("has no `rollouts` with a `conversation`")
    for rollout in rollouts:
        yield one_rollout(as_messages(get_objects(rollout, "conversation")), get_reward(rollout, "score"), group)


def _one_turn(prompt: object, response: object) -> list[dict[str, object]]:
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]
