"""Programs that save a row for each rollout, or for each turn of one: TRL (`log_completions`), SkyRL
(`dump_eval_results`), verl (`rollout_data_dir`, `validation_data_dir`); and Atropos, which saves one for each group.

SkyRL and verl save the prompt as the text that the model was given, chat template included: it is one message, and what
the model was shown between its turns is part of a response.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from rg_env.dump import Phase
from rg_env.dump.files import parse_name
from rg_env.formats.records import (
    Place,
    Row,
    Turn,
    answer_entry,
    as_messages,
    assistant_turns,
    choose_reward,
    get,
    get_objects,
    get_reward,
    item_facts,
    one_prompt,
    one_rollout,
)

_NO_REWARDS = ("step", "advantage", "mask", "temperature")


def trl_rows(row: dict[str, Any], place: Place) -> Iterator[Row]:
    """Read the rollout of a row of `completions_*.parquet`. Its reward is the only column of numbers beside step and
    advantage, or the one that the user names: how several rewards were weighted is not saved.
    """
    # A null is a reward of this row that is unknown: `_table` has left out the nulls of all other columns.
    names = [name for name, cell in row.items() if isinstance(cell, float | None) and name not in _NO_REWARDS]
    if place.reward in row:
        names = [place.reward]
    reward, rewards = choose_reward({name: row[name] for name in names}, place.reward)
    prompt = _trl_messages(row, "prompt", "user")
    completion = _trl_messages(row, "completion", "assistant")
    # TRL saves what it has generated last at each step that it logs, whether it is new or not.
    saved = json.dumps(row | {"step": None}, sort_keys=True)
    result = one_rollout(prompt + completion, reward, {"step": row.get("step")}, turns=assistant_turns(completion))
    result.key = blake2b(saved.encode("utf-8", "replace"), digest_size=16).hexdigest()
    result.rewards = rewards
    yield result


def trl_remark(rows: Iterable[Row]) -> str:
    """Say that steps are missing: TRL saves what it generated last whenever it logs."""
    every = 0
    for row in rows:
        every = math.gcd(every, row.group.step or 0)
    if every < 2:
        return ""
    return f"one step in {every:,} (TRL saves one in `logging_steps`)"


def _trl_messages(row: dict[str, Any], name: str, role: str) -> list[dict[str, Any]]:
    """Return the messages of a column: TRL saves a plain prompt as a text, one of a chat as a list."""
    if isinstance(row[name], str):
        return [{"role": role, "content": row[name]}]
    return as_messages(get_objects(row, name))


def skyrl_rows(row: dict[str, Any], place: Place) -> Iterator[Row]:
    """Read a line of `dumped_evals/global_step_N_evals/DATA_SOURCE.jsonl`: a rollout, or one turn of it with
    `step_wise_trajectories`."""
    if place.path.name.startswith("aggregated_results.jsonl"):  # it has means of the other files, no rollouts
        return
    # A score is a number, or a list of numbers, whose sum is the reward.
    rewards = row.get("score")
    each = rewards if isinstance(rewards, list) else [rewards]
    step = re.fullmatch(r"global_step_(\d{1,18})_evals", place.path.parent.name)
    facts = {"phase": Phase.EVAL, "step": int(step[1]) if step else None, "task": row.get("data_source")}
    extras = get(row, "env_extras", dict[str, Any]) or {}
    spec = extras.get("reward_spec") or extras.get("reward_model")
    facts["entry"] = answer_entry(spec.get("ground_truth") if isinstance(spec, dict) else None)
    facts |= item_facts(extras.get("extra_info"))
    facts["uid"] = facts.get("item")
    # An empty list is not a score: its sum is unknown, not 0.
    reward = sum(get_reward({"score": number}, "score") for number in each or [None])
    yield _row_of_text(row, "input_prompt", "output_response", reward, facts, stop_reason=row.get("stop_reason"))


def folder_of_evaluations(path: Path) -> Path:
    """Return the folder of a run's evaluations, which are in one of its own for each step."""
    if re.fullmatch(r"global_step_\d+_evals|eval_only", path.parent.name):
        return path.parent.parent
    return path.parent


def verl_rows(row: dict[str, Any], place: Place) -> Iterator[Row]:
    """Read a line of `STEP.jsonl`: a rollout or, with a newer verl's `uid` (question, sample, output), one of its
    outputs."""
    name = str(row.get("uid") or "")
    uid, rollout, number = name, "", 0
    if parts := re.fullmatch(r"(.+)_\d+_(\d{1,18})", name, re.DOTALL):
        uid, rollout, number = parts[1], name.removesuffix(f"_{parts[2]}"), int(parts[2])
    facts = {"step": row.get("step"), "entry": answer_entry(row.get("gts")), "uid": uid}
    name = place.reward if place.reward in row else "score"
    reward, _ = choose_reward({name: row.get(name)}, place.reward)
    yield _row_of_text(row, "input", "output", reward, facts, rollout=rollout, number=number)


def verl_remark(rows: Iterable[Row]) -> str:
    """Say that rows cannot be told apart as outputs of one rollout."""
    if any(not row.turn.rollout for row in rows):
        return "every row whose `uid` does not name question, sample and output counts as a rollout"
    return ""


def _row_of_text(
    row: dict[str, Any],
    prompt: str,
    response: str,
    reward: float,
    group: dict[str, Any],
    *,
    stop_reason: object = None,
    **turn: Any,
) -> Row:
    """Return the row whose prompt and response are the texts of these names."""
    conversation = one_prompt(row[prompt], row[response])
    facts = {"stop_reason": stop_reason, "truncated": stop_reason == "length", "turns": assistant_turns(conversation)}
    result = one_rollout(conversation, reward, group, **facts)
    result.turn = Turn(row[prompt], row[response], **turn)
    return result


def atropos_rows(line: dict[str, Any], place: Place) -> Iterator[Row]:
    """Read the rollouts of a line of Atropos' Reasoning Gym environment: its scores are those after the length penalty.
    Files of one run have its id in their names; groups that were all correct are not in them.
    """
    if line.keys() >= {"tokens", "scores"}:
        raise ValueError(
            "saved by Atropos' `process`, which names no task: set dump_rollouts=true in its Reasoning Gym "
            "environment, whose files are read"
        )
    path = place.path
    file = parse_name(path)
    run_id = path.name.partition(".jsonl")[0] if file is None else file.run_id
    group = {"run_id": run_id, "task": line["item_id"], "uid": f"{place.name}:{place.offset}"}
    rollouts = get_objects(line, "rollouts")
    if not rollouts or any(rollout.get("conversation") is None for rollout in rollouts):
        raise ValueError("has no `rollouts` with a `conversation`")
    for rollout in rollouts:
        conversation = as_messages(get_objects(rollout, "conversation"))
        yield one_rollout(conversation, get_reward(rollout, "score"), group)
