"""ATIF, the trajectory format of Harbor: a document for each rollout, `extra.rl` for what reinforcement learning needs.

A job of Harbor is a folder with one for each trial, in which `result.json` has the task and the verifier's rewards, and
`agent/trajectory.json` the document, which others beside it may continue.

Not covered: images, trajectories of subagents and of simulated users.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

from rg_env.dump import GroupRecord, RolloutRecord
from rg_env.dump.files import MAX_LINE, open_regular
from rg_env.formats.carry import carried, name_of, restored
from rg_env.formats.records import (
    Place,
    Row,
    as_messages,
    choose_reward,
    get,
    get_objects,
    get_reward,
    loads,
    one_rollout,
)

VERSION = "ATIF-v1.8"
_ROLES = {"system": "system", "user": "user", "agent": "assistant"}
_SOURCES = {"system": "system", "assistant": "agent"}
_AGENT, _RESULT = "agent", "result.json"
"""The folder of a trial with the agent's files, and the file with what came of it."""


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
        "trajectory_id": name_of(group, rollout),
        "agent": agent,
        "steps": steps,
        "extra": {"rl": carried(group, rollout)},
    }
    if rollout.response_tokens is not None:
        document["final_metrics"] = {"total_completion_tokens": rollout.response_tokens}
    return document


def atif_rows(document: dict[str, Any], place: Place) -> Iterator[Row]:
    """Read the rollout of a document, as a group of its own."""
    if not str(document["schema_version"]).startswith("ATIF-v1."):
        raise ValueError(f"version {str(document['schema_version'])[:20]}: ATIF-v1 is read")
    # A document that we exported has everything of ours, except the texts, which are in its steps.
    if record := get(document, "extra.rl"):
        yield restored(record, [step.get("message") for step in get_objects(document, "steps")])
        return
    conversation: list[dict[str, Any]] = []
    turns, tokens = 0, None
    for segment in (document, *_continuations(document, place.path)):
        steps = get_objects(segment, "steps")
        conversation += _conversation(steps)
        turns += sum(map(_is_turn, steps))
        # Each document has the number of all until then.
        tokens = get(segment, "final_metrics.total_completion_tokens")
    if not turns:
        raise ValueError("has no step of the agent")
    group, numbers = _trial_of(place.path)
    # What the verifier gave, before what the agent may have written.
    reward, unclear = math.nan, tuple[str, ...]()
    if numbers:
        reward, unclear = choose_reward(numbers, place.reward, usual="reward")
    elif not place.reward:
        reward = get_reward(document, "extra.reward")
    elif not group:  # a trial without a number was not verified, and is unscored
        reward, _ = choose_reward(_numbers_written(document), place.reward)
    row = one_rollout(conversation, reward, group, response_tokens=tokens, turns=turns)
    row.rewards = unclear
    yield row


def _numbers_written(document: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers that the agent wrote into a document, by name; a null is one that is unknown."""
    extra = get(document, "extra", dict[str, Any]) or {}
    return {name: value for name, value in extra.items() if isinstance(value, int | float | None)}


def _is_turn(step: dict[str, Any]) -> bool:
    return step.get("source") == "agent" and step.get("is_copied_context") is not True


def _conversation(steps: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages of steps. Those that were copied from an earlier trajectory are one message of the user, with
    the roles as text: they are not turns of this one, and nothing should be trained toward them."""
    conversation: list[dict[str, Any]] = []
    for is_copied, run in groupby(steps, key=lambda step: step.get("is_copied_context") is True):
        messages = as_messages(message for step in run for message in _messages(step))
        if is_copied:
            texts = [f"[{message['role']}]\n{message['content']}" for message in messages]
            messages = [{"role": "user", "content": "\n\n".join(texts)}]
        conversation += messages
    return conversation


def _continuations(document: dict[str, Any], path: Path) -> Iterator[dict[str, Any]]:
    """Yield the documents beside this one that go on with it, one after the other."""
    read = {path.name}
    while name := get(document, "continued_trajectory_ref", str):
        # Only a file beside it, once: the reference may come from anywhere.
        if name in read or Path(name).name != name:
            return
        read.add(name)
        document = _read_json(path.with_name(name))
        if not document:
            raise ValueError(f"is continued in {name[:50]}, which cannot be read")
        yield document


def _read_json(path: Path) -> dict[str, Any]:
    """Return the object in a file; an empty one if there is none that can be read."""
    with suppress(OSError, ValueError, RecursionError), open_regular(path) as file:
        value = loads(file.read(MAX_LINE))
        if isinstance(value, dict):
            return value
    return {}


def _trial_of(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the trial of a trajectory says about the group, and the verifier's rewards; nothing if the trajectory
    is in no trial of Harbor."""
    if path.parent.name != _AGENT:
        return {}, {}
    # A trial of several steps has a folder for each, with rewards of its own.
    part = trial = path.parent.parent
    step = ""
    if part.parent.name == "steps":
        trial, step = part.parent.parent, part.name
    result = _read_json(trial / _RESULT)
    rewards = _rewards_of(result, part, step)
    if not result and not rewards:
        return {}, {}
    task = get(result, "task_name", str) or trial.name.rpartition("__")[0] or trial.name
    agent = get(result, "agent_info.name", str) or ""
    model = get(result, "agent_info.model_info.name", str) or ""
    item = " ".join(filter(None, (task, step)))
    uid = " ".join(filter(None, (item, agent, model)))
    # Attempts of one agent and model at a task are a group; a job is a run.
    return {"run_id": trial.parent.name, "task": get(result, "source", str), "item": item, "uid": uid}, rewards


def _rewards_of(result: dict[str, Any], folder: Path, step: str) -> dict[str, Any]:
    """Return the verifier's rewards of a trial or of one of its steps, by name."""
    verified = result
    if step:
        steps = get_objects(result, "step_results")
        verified = next((each for each in steps if each.get("step_name") == step), {})
    rewards: dict[str, Any] | None = get(verified, "verifier_result.rewards", dict[str, float | None])
    if not rewards:
        rewards = _read_json(folder / "verifier" / "reward.json")
    if rewards:
        return rewards
    with suppress(OSError, ValueError), open_regular(folder / "verifier" / "reward.txt") as file:
        return {"reward": float(file.read(100))}
    return {}


def trials_without_trajectory(source: Path, paths: Sequence[Path]) -> Iterator[str]:
    """Yield a line for each trial of Harbor in a folder that has a result, but no trajectory among the files."""
    read = {folder for path in paths for folder in path.parents}
    for path in sorted(source.rglob(_RESULT)):
        if path.parent not in read and "trial_name" in _read_json(path):
            yield f"{path.parent.relative_to(source)}: a trial without {_AGENT}/trajectory.json"


def _messages(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the step's message, then what its tools returned."""
    # An unknown source has no role, which is an error where the group is made: the record is then left out and named.
    yield {**step, "role": _ROLES.get(get(step, "source", str)), "content": step["message"]}
    for result in get_objects(step, "observation.results"):
        if result.get("content"):
            yield {"role": "tool", "content": result["content"]}
