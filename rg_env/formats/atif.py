"""ATIF, the trajectory format of Harbor: a document for each rollout, `extra.rl` for what reinforcement learning needs.

Not covered: images, and trajectories of subagents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rg_env.dump import GroupRecord, RolloutRecord
from rg_env.formats.carry import carried, restored
from rg_env.formats.importing import (
    Row,
    as_content,
    as_count,
    as_messages,
    as_number,
    scored_rollout,
)

VERSION = "ATIF-v1.8"
_ROLES = {"system": "system", "user": "user", "agent": "assistant"}
_SOURCES = {"system": "system", "assistant": "agent"}


def atif_document(group: GroupRecord, rollout: RolloutRecord, model: str) -> dict[str, Any]:
    """The document of a rollout."""
    steps: list[dict[str, Any]] = [
        {"step_id": number, "source": _SOURCES.get(message["role"], "user"), "message": message["content"]}
        for number, message in enumerate(rollout.conversation, 1)
    ]
    agent = {"name": "rg_env", "version": version("rg_env"), **({"model_name": model} if model else {})}
    document = {
        "schema_version": VERSION,
        "session_id": group.run_id,
        "trajectory_id": f"{group.group_id}#{rollout.repetition}",
        "agent": agent,
        "steps": steps or [{"step_id": 1, "source": "system", "message": ""}],
        "extra": {"rl": carried(group, rollout)},
    }
    if rollout.response_tokens is not None:
        document["final_metrics"] = {"total_completion_tokens": rollout.response_tokens}
    return document


def atif_rows(document: Mapping[str, Any], path: Path, place: int) -> Iterator[Row]:
    """The rollout of a document."""
    steps, name = document.get("steps"), document.get("schema_version")
    if not isinstance(name, str) or not name.startswith("ATIF-v"):
        raise ValueError("no ATIF document: `schema_version` does not begin with ATIF-v")
    if not name.startswith("ATIF-v1."):
        raise ValueError(f"version {name[:20]}: ATIF-v1 is read")
    if not isinstance(steps, list) or not all(isinstance(step, Mapping) for step in steps):
        raise ValueError("has no `steps`")
    extra = document.get("extra")
    extra = extra if isinstance(extra, Mapping) else {}
    if "rl" in extra:
        yield restored(extra["rl"], [step.get("message") for step in steps])
        return
    agent_steps = [step for step in steps if step.get("source") == "agent"]
    if not agent_steps:
        raise ValueError("has no step of the agent")
    metrics = document.get("final_metrics")
    tokens = as_count(metrics.get("total_completion_tokens")) if isinstance(metrics, Mapping) else None
    conversation = as_messages([message for step in steps for message in _messages(step)])
    reward = as_number(extra.get("reward"), "extra.reward")
    yield Row(scored_rollout(conversation, reward, response_tokens=tokens, turns=len(agent_steps)), {})


def _messages(step: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The step's message, then what its tools returned."""
    role = _ROLES.get(str(step.get("source")))
    if role is None:
        raise ValueError("a step has no known `source`")
    yield {**step, "role": role, "content": step.get("message")}
    observation = step.get("observation")
    results = observation.get("results") if isinstance(observation, Mapping) else None
    for result in results if isinstance(results, list) else ():
        content = as_content(result.get("content")) if isinstance(result, Mapping) else None
        if content:
            yield {"role": "tool", "content": content}
