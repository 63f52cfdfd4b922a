"""`traces.jsonl` of verifiers, and prime-rl's files: an episode in each line, with a trace of every agent, a rollout.

A trace is a graph of messages; the rollout is its last branch. Not covered: tokens, episodes without a trace, and what
prime-rl adds to a trace later (`annotations`): advantages and the step that was trained on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from typing import Any

from rg_env.dump import GroupRecord, Phase, RolloutRecord
from rg_env.formats.carry import carried, name_of, restored
from rg_env.formats.records import (
    Place,
    Row,
    answer_entry,
    as_messages,
    choose_reward,
    get,
    get_objects,
    get_reward,
    item_facts,
    loads,
    one_rollout,
)

VERSION = 1
_ROLES = ("system", "user", "assistant", "tool")
_REASONS = ("stop", "length", "tool_calls")
_LIMITS = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "compaction_failed")


def episode_of(group: GroupRecord, rollout: RolloutRecord, model: str) -> dict[str, Any]:
    """Make the episode of a rollout, with one trace."""
    # A graph without branches: each message has the one before it as its parent.
    nodes: list[dict[str, Any]] = []
    asked = len(rollout.prompt)
    parent: int | None = None
    for number, message in enumerate(rollout.conversation):
        role = message["role"] if message["role"] in _ROLES else "user"
        content = {"role": role, "content": message["content"]}
        if role == "tool":  # verifiers wants the id of the call, which dumps do not have
            content["tool_call_id"] = ""
        sampled = number >= asked and role == "assistant"
        nodes.append({"parent": parent, "message": content, "sampled": sampled})
        parent = number
    # A call for each turn of the model; why it stopped is known of the last one only.
    calls = [{"node": number, "model": model or None} for number, node in enumerate(nodes) if node["sampled"]]
    if calls and rollout.stop_reason in _REASONS:
        calls[-1]["finish_reason"] = rollout.stop_reason
    task = {"type": "Task", "data": {"id": group.item, "name": group.task}, "key": group.item or None}
    ok = rollout.status.is_counted
    run: dict[str, Any] = {"type": "eval", "id": group.run_id}
    if group.phase == Phase.TRAIN and group.step is not None:
        run |= {"type": "train", "work": {"type": "train", "step": group.step}}
    reward = None
    if ok and not math.isnan(rollout.reward):
        reward = {"score": rollout.reward}
    trace = {
        "version": VERSION,
        "id": name_of(group, rollout),
        "verifiers": {"version": f"rg_env {version('rg_env')}"},
        "task": task,
        "agent": {"config": {"model": model or None}},
        "nodes": nodes,
        "calls": calls,
        "rewards": {"reward": reward},
        "info": {"rl": carried(group, rollout)},
        "is_completed": True,
        "ok": ok,
    }
    # The episode repeats these values of its only trace.
    same = {key: trace[key] for key in ("id", "task", "ok")}
    return {**same, "env": {"id": group.environment}, "group": {"id": group.group_id}, "run": run, "traces": [trace]}


def episode_rows(episode: dict[str, Any], place: Place) -> Iterator[Row]:
    """Read the rollouts of an episode."""
    if "reward" in episode and "traces" not in episode:
        raise ValueError(
            "saved by verifiers before 0.4, whose results and rollouts are not read: update verifiers or prime-rl, "
            "which then save traces"
        )
    if "traces" not in episode:
        raise ValueError("no episode of verifiers 0.4: has no `traces`")
    for trace in get_objects(episode, "traces"):
        if trace.get("version") != VERSION:
            raise ValueError(f"trace of version {str(trace.get('version'))[:20]}: {VERSION} is read")
        if trace.get("nodes") is None:
            raise ValueError("a trace has no `nodes`")
        branch = _last_branch(get_objects(trace, "nodes"))
        messages = [node["message"] for node in branch]
        # An episode that we exported has everything of ours, except the texts, which are in its nodes.
        if record := get(trace, "info.rl"):
            yield restored(record, [get(message, "content") for message in messages])
            continue
        calls = [call for call in get_objects(trace, "calls") if not call.get("error")]
        tokens = [get(call, "usage.completion_tokens", int) for call in calls]
        reason = calls[-1].get("finish_reason") if calls else None
        versions = [get(episode, f"run.work.policy.{end}", int) for end in ("start", "end")]
        # A single version, or the first and the last one if the policy was updated during the episode.
        names = [str(version) for version in dict.fromkeys(versions) if version is not None]
        response_tokens = None
        if tokens and None not in tokens:
            response_tokens = sum(tokens)
        facts = {
            "response_tokens": response_tokens,
            "stop_reason": reason,
            "truncated": reason == "length" or trace.get("stop_condition") in _LIMITS,
            "policy_version": "-".join(names),
            "turns": sum(node.get("sampled") is True for node in branch),
        }
        row = one_rollout(as_messages(messages), _reward(trace, place.reward), _group(episode, trace), **facts)
        # prime-rl has an episode among all of its step, and again among those that were trained on.
        row.key = get(trace, "id", str) or ""
        yield row


def _last_branch(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the nodes from the root to the last one."""
    branch: list[dict[str, Any]] = []
    number: Any = len(nodes) - 1 if nodes else None
    end = len(nodes)
    # A parent stands before its children, so numbers only fall, and a circle in the graph ends here too.
    while number is not None:
        if not isinstance(number, int) or not 0 <= number < end:
            raise ValueError("the nodes of a trace are not a graph")
        branch.append(nodes[number])
        number, end = nodes[number].get("parent"), number
    return branch[::-1]


def _group(episode: dict[str, Any], trace: dict[str, Any]) -> dict[str, Any]:
    """Read the values of the group. Agents of other names have groups of their own."""
    task = trace.get("task") or episode.get("task")
    item = get(task, "data.id")  # a field of the task's own, often an index
    # The first is prime-rl's own, which is on a trace before it is saved.
    kinds = (get(trace, "info.kind"), get(episode, "run.work.type"), get(episode, "run.type"))
    kind = next((kind for kind in kinds if kind in list(Phase)), None)
    step = get(episode, "run.work.step")
    if step is None:
        step = get(trace, "info.dispatch.step")
    facts: dict[str, Any] = {
        "run_id": get(episode, "run.name", str) or get(episode, "run.id", str),
        "task": get(task, "data.name") or get(episode, "env.id"),
        "item": str(item) if isinstance(item, int) else item,
        "step": step,
        "phase": kind,
        "entry": answer_entry(get(task, "data.answer")),
    }
    row = get(task, "data.item")
    # Tasks made of our rows carry the row as a text; anything else ends in the same exception.
    with suppress(ValueError, RecursionError):
        facts |= item_facts(loads(row if isinstance(row, str) else ""))
    uid = get(episode, "group.id") or get(task, "key") or get(task, "hash")
    agent = get(trace, "agent.name") or "agent"
    if uid and agent != "agent":
        uid = f"{uid} {agent}"
    return {**facts, "uid": uid}


def _reward(trace: dict[str, Any], chosen: str) -> float:
    """Return the weighted sum, or the one that the user chose; NaN if there is none, or one was not scored. Those of a
    failed trace are not all written."""
    rewards = get(trace, "rewards", dict[str, dict[str, Any] | None]) or {}
    if trace.get("ok") is False or not rewards:
        return math.nan
    if chosen:
        reward, _ = choose_reward({name: get(each, "score") for name, each in rewards.items()}, chosen)
        return reward
    each = [{"weight": 1.0, **(reward or {})} for reward in rewards.values()]
    return sum(get_reward(reward, "score") * get_reward(reward, "weight") for reward in each)
