"""What the formats share: foreign values by their path, messages as text, a rollout as a group of its own.

Invariant: a value of the wrong type is a ValueError: what a format takes from a foreign record has the type of the
field of ours that it becomes. Keys that no format reads are ignored.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rg_env.dump import GroupRecord
from rg_env.errors import ConfigError
from rg_env.scoring.types import Status
from rg_env.tasks import Item

ENVIRONMENT = "imported"
"""The environment of imported groups: they have none of the numbers that rg_dump's have."""


def get(value: Any, path: str, kind: Any = Any) -> Any:
    """Return the value at a path of keys, such as `task.data`; None if one of them is missing or null.

    Raises:
        ValueError: it is of another type, or what should have a key is no object.
    """
    for key in path.split("."):
        if value is None:
            break
        if not isinstance(value, dict):
            raise ValueError(f"what should have `{key}` is not an object")
        value = value.get(key)
    try:
        return msgspec.convert(value, kind | None)
    except msgspec.ValidationError as error:
        raise ValueError(f"`{path}`: {error}") from None


def get_objects(value: Any, path: str) -> list[dict[str, Any]]:
    """Return the objects in the list at a path."""
    return get(value, path, list[dict[str, Any]]) or []


def get_reward(value: Any, path: str) -> float:
    """Return the number at a path; NaN if there is none, or one so large that sums of such numbers are infinite."""
    number: float | None = get(value, path, float)
    if number is not None and abs(number) < 1e300:
        return number
    return math.nan


def as_messages(messages: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the messages as text: reasoning is a think block, the call of a tool a line, an image the name of its
    type."""
    result = []
    for message in messages:
        reasoning = get(message, "reasoning_content", str)
        content = get(message, "content", str | list[dict[str, Any]])
        # Both forms of OpenAI's messages: a text, or a list of texts and images.
        pieces = content if isinstance(content, list) else [{"text": content}]
        calls = []
        for call in get_objects(message, "tool_calls"):
            function = get(call, "function") or call
            calls.append(f"[tool_call {json.dumps(function, ensure_ascii=False)}]")
        lines = [*map(_piece_text, pieces), *calls]
        if reasoning:
            lines.insert(0, f"<think>{reasoning}</think>")
        result.append({"role": get(message, "role"), "content": "\n".join(filter(None, lines))})
    return result


def _piece_text(piece: dict[str, Any]) -> str:
    """Return the text of a piece of a message or, of an image, the name of its type."""
    if text := get(piece, "text", str):
        return str(text)
    return f"[{piece['type']}]" if "type" in piece else ""


def one_rollout(
    conversation: list[dict[str, Any]], reward: float, group: Mapping[str, Any], **facts: Any
) -> GroupRecord:
    """Return a group of one rollout; `import_records` joins those of the same question.

    Args:
        reward: the source's, which is the score as well; NaN: unknown.
        group: values of the group with `phase`; None and "" are none. `uid` is the source's own id of the group:
            without one, rollouts with equal prompts are a group.
        facts: other values of the rollout; None is none.
    """
    scores = dict.fromkeys(("score", "reward", "base_score"), reward)
    status = Status.UNSCORED if math.isnan(reward) else Status.OK
    known = {name: value for name, value in facts.items() if value is not None}
    rollout = {"repetition": 0, **scores, "status": status, "conversation": conversation, **known}
    known = {name: value for name, value in group.items() if value is not None and value != ""}
    # A single rollout has no outcome and no signal: `import_records` sets these, and the id, once the group is whole.
    values = {"run_id": "", "task": ENVIRONMENT, **known, "group_id": "", "environment": ENVIRONMENT}
    values |= {"item_id": values["task"], "outcome": "mixed", "no_signal": False, "rollouts": [rollout]}
    return msgspec.convert(values, GroupRecord)


def item_facts(extra_info: object) -> dict[str, Any]:
    """Return the values of a group whose question is one of our rows; none if it is another."""
    try:
        item = Item.from_extra_info(extra_info)
    except (ConfigError, OverflowError, RecursionError):
        return {}
    facts = {name: getattr(item, name) for name in ("task", "level", "complexity")}
    return {"item": item.id, "entry": item.entry_json, "task_config": item.config_json, **facts}


def answer_entry(answer: object) -> str:
    """Return the entry of a question of which only the reference answer is known; "" if it is not."""
    if answer in (None, ""):
        return ""
    return json.dumps({"answer": answer}, ensure_ascii=False, default=str)
