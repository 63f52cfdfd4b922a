"""Rollouts that NeMo Gym collected: rows of its data with a response of OpenAI's Responses API, and its reward.

Not covered: environments whose rows have no such response.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any

import msgspec

from rg_env.formats.records import (
    Place,
    Row,
    answer_entry,
    as_messages,
    assistant_turns,
    choose_reward,
    get,
    get_objects,
    item_facts,
    one_rollout,
)


def gym_rows(row: dict[str, Any], place: Place) -> Iterator[Row]:
    """Read the rollout of a row."""
    response = get(row, "response", dict[str, Any])
    if response is None:
        raise KeyError("response")
    asked = get(row, "responses_create_params.input", str | list[dict[str, Any]]) or []
    if isinstance(asked, str):
        asked = [{"role": "user", "content": asked}]
    items = asked
    output = get(response, "output", list[Any]) or []
    # Some agents save what the model was given and gave at each step, from the beginning: the last one has everything.
    if output and isinstance(output[-1], list):
        items, output = [], output[-1]
    if system := get(row, "responses_create_params.instructions", str):
        items = [{"role": "system", "content": system}, *items]
    prompt = as_messages(_messages(items))
    completion = as_messages(_messages(get_objects({"output": output}, "output")))
    turns = assistant_turns(completion)
    if not turns:
        raise ValueError("its `response` has no output of the model")
    is_masked = get(row, "mask_sample", bool)
    reward = math.nan
    # Of a masked sample, and where the machine failed, the reward says nothing about the answer.
    if not is_masked and row.get("_ng_failure_class") is None:
        name = place.reward if place.reward in row else "reward"
        reward, _ = choose_reward({name: row.get(name)}, place.reward)
    agent = get(row, "agent_ref.name", str) or ""
    facts: dict[str, Any] = {"task": get(row, "task_name", str) or agent}
    facts["entry"] = answer_entry(get(row, "answer") or get(row, "expected_answer"))
    facts |= item_facts(row.get("extra_info"))
    reason = _stop_reason(response)
    known = {
        "response_tokens": get(response, "usage.output_tokens", int),
        "stop_reason": reason,
        "truncated": reason == "length",
        "masked": is_masked,
        "turns": turns,
    }
    result = one_rollout(prompt + completion, reward, facts, **known)
    index = get(row, "_ng_task_index", int)
    if index is not None:
        # Every collection counts from 0, and a folder may have several, so the index alone names no question.
        asked_of = [get(response, "model", str), result.rollout.prompt]
        digest = blake2b(msgspec.json.encode(asked_of), digest_size=4).hexdigest()
        words = filter(None, (str(index), agent, digest))
        result.group = msgspec.structs.replace(result.group, uid=" ".join(words))
    yield result


def _stop_reason(response: dict[str, Any]) -> str:
    """Return why the model stopped, in the words of chat completions. A response that does not say it is whole."""
    reason: str | None = get(response, "incomplete_details.reason", str)
    if reason is None:
        reason = get(response, "status", str)
    known = {None: "stop", "completed": "stop", "max_output_tokens": "length"}
    return known.get(reason) or str(reason)


def _messages(items: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the messages of items of the Responses API: what the model gave without a break, such as reasoning, a text
    and the calls of tools, is one message."""
    given: dict[str, Any] = {}
    for item in items:
        kind = get(item, "type", str) or "message"
        role = get(item, "role", str)
        if kind == "reasoning":
            texts = [*get_objects(item, "content"), *get_objects(item, "summary")]
            given = _added(given, "reasoning_content", "\n".join(str(text.get("text") or "") for text in texts))
        elif kind == "message" and role == "assistant":
            given = _added(given, "content", _text(item))
        elif kind.endswith("_call"):
            call = {"name": item.get("name") or kind, "arguments": item.get("arguments")}
            given = {**given, "role": "assistant", "tool_calls": [*given.get("tool_calls", []), call]}
        else:
            if given:
                yield given
            given = {}
            if kind.endswith("_output"):
                yield {"role": "tool", "content": _text({"content": item.get("output")})}
            else:
                yield {"role": {"developer": "system"}.get(role or "", role), "content": item.get("content")}
    if given:
        yield given


def _added(message: dict[str, Any], key: str, text: str) -> dict[str, Any]:
    """Return the assistant's message with more of a text."""
    return {**message, "role": "assistant", key: "\n".join(filter(None, (message.get(key), text)))}


def _text(item: dict[str, Any]) -> str:
    """Return the content of an item as text."""
    (message,) = as_messages([{"content": item.get("content")}])
    return str(message["content"])
