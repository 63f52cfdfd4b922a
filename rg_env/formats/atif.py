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


def atif_rows(document: dict[str, Any], path: Path, place: int) -> Iterator[GroupRecord]:
    """The rollout of a document."""
    if not str(document["schema_version"]).startswith("ATIF-v1."):
        raise ValueError(f"version {str(document['schema_version'])[:20]}: ATIF-v1 is read")
    steps = get_objects(document, "steps")
    if record := get(document, "extra.rl"):
        yield restored(record, [step.get("message") for step in steps])
        return
    turns = sum(step.get("source") == "agent" for step in steps)
    if not turns:
        raise ValueError("has no step of the agent")
    yield one_rollout(
        as_messages(message for step in steps for message in _messages(step)),
        get_reward(document, "extra.reward"),
        {"phase": Phase.EVAL},
        response_tokens=get(document, "final_metrics.total_completion_tokens"),
        turns=turns,
    )


def _messages(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The step's message, then what its tools returned."""
    yield {**step, "role": _ROLES.get(get(step, "source", str)), "content": step["message"]}
    for result in get_objects(step, "observation.results"):
        if result.get("content"):
            yield {"role": "tool", "content": result["content"]}
