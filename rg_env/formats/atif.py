"""ATIF, the trajectory format of Harbor: a document for each rollout, `extra.rl` for what reinforcement learning needs.

Not covered: images, and trajectories of subagents.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rg_env.dump import GroupRecord, Phase, RolloutRecord
from rg_env.formats.carry import carried, restored
from rg_env.formats.records import as_messages, get, get_objects, get_reward, one_rollout

VERSION = "ATIF-v1.8"
_ROLES = {"system": "system", "user": "user", "agent": "assistant"}
_SOURCES = {"system": "system", "assistant": "agent"}


def atif_document(group: GroupRecord, rollout: RolloutRecord, model: str) -> dict[str, Any]:
    """Make the document of a rollout."""
    steps: list[dict[str, Any]] = []
    for number, message in enumerate(rollout.conversation, 1):
        source = _SOURCES.get(message["role"], "user")
        steps.append({"step_id": number, "source": source, "message": message["content"]})
    if not steps:  # a document without steps is not valid
        steps = [{"step_id": 1, "source": "system", "message": ""}]
    agent = {"name": "rg_env", "version": version("rg_env")}
    if model:
        agent["model_name"] = model
    document: dict[str, Any] = {
        "schema_version": VERSION,
        "session_id": group.run_id,
        "trajectory_id": f"{group.group_id}#{rollout.repetition}",
        "agent": agent,
        "steps": steps,
        "extra": {"rl": carried(group, rollout)},
    }
    if rollout.response_tokens is not None:
        document["final_metrics"] = {"total_completion_tokens": rollout.response_tokens}
    return document


def atif_rows(document: dict[str, Any], path: Path, place: int) -> Iterator[GroupRecord]:
    """Read the rollout of a document, as a group of its own."""
    if not str(document["schema_version"]).startswith("ATIF-v1."):
        raise ValueError(f"version {str(document['schema_version'])[:20]}: ATIF-v1 is read")
    steps = get_objects(document, "steps")
    # A document that we exported has everything of ours, except the texts, which are in its steps.
    if record := get(document, "extra.rl"):
        yield restored(record, [step.get("message") for step in steps])
        return
    turns = sum(step.get("source") == "agent" for step in steps)
    if not turns:
        raise ValueError("has no step of the agent")
    conversation = as_messages(message for step in steps for message in _messages(step))
    reward = get_reward(document, "extra.reward")
    tokens = get(document, "final_metrics.total_completion_tokens")
    yield one_rollout(conversation, reward, {"phase": Phase.EVAL}, response_tokens=tokens, turns=turns)


def _messages(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the step's message, then what its tools returned."""
    # An unknown source has no role, which is an error where the group is made: the record is then left out and named.
    yield {**step, "role": _ROLES.get(get(step, "source", str)), "content": step["message"]}
    for result in get_objects(step, "observation.results"):
        if result.get("content"):
            yield {"role": "tool", "content": result["content"]}
