"""`traces.jsonl` of verifiers and prime-rl: an episode in each line, with a trace of every agent, a rollout.

A trace is a graph of messages; the rollout is its last branch. Not covered: tokens, and episodes without a trace.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from rg_env.dump import GroupRecord, Phase, RolloutRecord
from rg_env.formats.carry import carried, restored
from rg_env.formats.importing import (
    Row,
    answer_entry,
    as_count,
    as_messages,
    as_number,
    as_object,
    as_text,
    scored_rollout,
)
from rg_env.formats.tables import item_facts

VERSION = 1
_ROLES = ("system", "user", "assistant", "tool")
_REASONS = ("stop", "length", "tool_calls")
_LIMITS = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "compaction_failed")


def episode_of(group: GroupRecord, rollout: RolloutRecord, model: str) -> dict[str, Any]:
    """The episode of a rollout, with one trace."""
    prompts = len(rollout.prompt)
    nodes = []
    for number, message in enumerate(rollout.conversation):
        role = message["role"] if message["role"] in _ROLES else "user"
        content = {"role": role, "content": message["content"], **({"tool_call_id": ""} if role == "tool" else {})}
        sampled = number >= prompts and role == "assistant"
        nodes.append({"parent": number - 1 if number else None, "message": content, "sampled": sampled})
    reason = rollout.stop_reason if rollout.stop_reason in _REASONS else None
    calls = [{"node": number, "model": model or None} for number, node in enumerate(nodes) if node["sampled"]]
    for call in calls[-1:]:
        call["finish_reason"] = reason
    task = {"type": "Task", "data": {"id": group.item, "name": group.task}, "key": group.item or None}
    ok = rollout.status.is_counted
    run: dict[str, Any] = {"type": "eval", "id": group.run_id}
    if group.phase == Phase.TRAIN and group.step is not None:
        run |= {"type": "train", "work": {"type": "train", "step": group.step}}
    trace = {
        "version": VERSION,
        "id": f"{group.group_id}#{rollout.repetition}",
        "verifiers": {"version": f"rg_env {version('rg_env')}"},
        "task": task,
        "agent": {"config": {"model": model or None}},
        "nodes": nodes,
        "calls": calls,
        "rewards": {"reward": None if math.isnan(rollout.reward) or not ok else {"score": rollout.reward}},
        "info": {"rl": carried(group, rollout)},
        "is_completed": True,
        "ok": ok,
    }
    return {
        "id": trace["id"],
        "env": {"id": group.environment},
        "task": task,
        "group": {"id": group.group_id},
        "run": run,
        "ok": ok,
        "traces": [trace],
    }


def episode_rows(episode: Mapping[str, Any], path: Path, place: int) -> Iterator[Row]:
    """The rollouts of an episode."""
    traces = episode.get("traces")
    if not isinstance(traces, list):
        raise ValueError("no episode of verifiers 0.4: has no `traces`")
    for trace in map(as_object, traces):
        if trace.get("version") != VERSION:
            raise ValueError(f"trace of version {as_text(trace.get('version'))[:20] or 'unknown'}: {VERSION} is read")
        messages, sampled = _last_branch(trace.get("nodes"))
        info = as_object(trace.get("info"))
        if "rl" in info:
            yield restored(info["rl"], [message.get("content") for message in messages])
        else:
            yield _row(episode, trace, as_messages(messages), sampled)


def _last_branch(nodes: object) -> tuple[list[Mapping[str, Any]], int]:
    """The messages from the root to the last node, and how many of them the model wrote."""
    if not isinstance(nodes, list):
        raise ValueError("a trace has no `nodes`")
    branch: list[Mapping[str, Any]] = []
    number: Any = len(nodes) - 1 if nodes else None
    end = len(nodes)
    while number is not None:
        if not isinstance(number, int) or not 0 <= number < end:
            raise ValueError("the nodes of a trace are no graph")
        branch.append(as_object(nodes[number]))
        number, end = branch[-1].get("parent"), number
    branch.reverse()
    return [as_object(node.get("message")) for node in branch], sum(node.get("sampled") is True for node in branch)


def _row(episode: Mapping[str, Any], trace: Mapping[str, Any], messages: list[dict[str, str]], sampled: int) -> Row:
    """A rollout that another program recorded."""
    task = as_object(trace.get("task") or episode.get("task"))
    data, run = as_object(task.get("data")), as_object(episode.get("run"))
    work = as_object(run.get("work"))
    policy = as_object(work.get("policy"))
    versions = dict.fromkeys(as_text(policy.get(name)) for name in ("start", "end"))
    raw_calls = trace.get("calls")
    calls = [call for call in map(as_object, raw_calls if isinstance(raw_calls, list) else []) if not call.get("error")]
    tokens = [as_count(as_object(call.get("usage")).get("completion_tokens")) for call in calls]
    known = [count for count in tokens if count is not None]
    reason = as_text(calls[-1].get("finish_reason")) if calls else ""
    rollout = scored_rollout(
        messages,
        math.nan if trace.get("ok") is False else _reward(trace.get("rewards")),
        response_tokens=sum(known) if tokens and len(known) == len(tokens) else None,
        stop_reason=reason,
        truncated=reason == "length" or trace.get("stop_condition") in _LIMITS,
        policy_version="-".join(filter(None, versions)),
        turns=sampled,
    )
    facts: dict[str, Any] = {
        "task": as_text(data.get("name")) or as_text(as_object(episode.get("env")).get("id")),
        "item": as_text(data.get("id")),
        "step": as_count(work.get("step")),
        "phase": Phase.TRAIN if (work or run).get("type") == "train" else Phase.EVAL,
        "entry": answer_entry(data.get("answer")),
    }
    with suppress(orjson.JSONDecodeError):
        facts |= item_facts(orjson.loads(as_text(data.get("item"))))
    group = as_text(as_object(episode.get("group")).get("id"))
    key = group or as_text(task.get("key")) or as_text(task.get("hash"))
    agent = as_text(as_object(trace.get("agent")).get("name"))
    return Row(rollout, facts, f"{key} {agent}" if key and agent not in ("", "agent") else key)


def _reward(rewards: object) -> float:
    """The weighted sum; NaN if there is none, or one was not scored. Those of a failed trace are not all written."""
    values = list(rewards.values()) if isinstance(rewards, Mapping) else []
    if not values or any(value is None for value in values):
        return math.nan
    pairs = [(as_object(value).get("score"), as_object(value).get("weight", 1.0)) for value in values]
    return sum(as_number(score, "score") * as_number(weight, "weight") for score, weight in pairs)
