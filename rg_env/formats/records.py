"""What the formats share: foreign values by their path, messages as text, a rollout as a group of its own, and the
turns that a text has.

Invariant: a value of the wrong type is a ValueError: what a format takes from a foreign record has the type of the
field of ours that it becomes. Keys that no format reads are ignored.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from rg_env.base.errors import ConfigError
from rg_env.dump import GroupRecord, Phase, RolloutRecord
from rg_env.scoring.types import Status
from rg_env.tasks import Item

ENVIRONMENT = "imported"
"""The environment of imported groups: they have none of the numbers that rg_dump's have."""
_ASSISTANT = re.compile(
    r"(?:<[^<>\s]{1,40}>(?:assistant|model)(?:<[^<>\s]{1,40}>)?|<[|｜]assistant[|｜]>|^(?:assistant|model)|\[/INST\])\s*\Z",
    re.IGNORECASE | re.MULTILINE,
)
"""How a chat template opens the assistant's turn, at the end of a prompt; without special tokens, a word in a line."""
_OTHERS = re.compile(
    r"<[^<>\s]{1,40}>(?:user|tool|system|ipython|observation)\b|<[|｜](?:user|tool|observation)\b|\[INST\]"
    r"|^(?:user|tool|system|ipython|observation)$",
    re.IGNORECASE | re.MULTILINE,
)
"""How it opens any other turn."""
OPEN_THINK = re.compile(r"<think>\s*(?:</think>\s*)?\Z")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record lies: its file, `name` below the source, and the bytes before it; and which of its numbers is the
    reward, if the user says so."""

    path: Path
    name: str = ""
    offset: int = 0
    reward: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """A prompt and a response, which may be a later turn of a rollout.

    Attributes:
        rollout: the source's name of the rollout; "" if it has none, so that only the prompt tells.
        number: of the turn in it.
    """

    prompt: str = ""
    response: str = ""
    rollout: str = ""
    number: int = 0


@dataclass(slots=True)
class Row:
    """A rollout, as a group of its own, and what tells where it belongs.

    Attributes:
        has_phase: False if the record does not say whether it is of an evaluation; the group's phase is a guess then.
        turn: of a record that may be one turn of a rollout; empty for others.
        key: equal for records that are the same rollout, saved again; "" if the record cannot tell.
        rewards: the names of the numbers of which any may be the reward, which is unknown then.
    """

    group: GroupRecord
    has_phase: bool = True
    turn: Turn = Turn()
    key: str = ""
    rewards: tuple[str, ...] = ()
    prompt: bytes = field(default=b"", repr=False)

    @property
    def rollout(self) -> RolloutRecord:
        return self.group.rollouts[0]


def loads(text: str | bytes) -> Any:
    """Return the JSON value, with whole numbers of any size, and with the NaN that Python writes; `?` for lone
    surrogates, which UTF-8 cannot hold."""
    try:
        return msgspec.json.decode(text)
    except ValueError:
        return json.loads(json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8", "replace"))


def get(value: Any, path: str, kind: Any = Any) -> Any:
    """Return the value at a path of keys, such as `task.data`; None if one of them is missing or null.

    Raises:
        ValueError: it is of another type, or what should have a key is not an object.
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


def choose_reward(numbers: Mapping[str, Any], chosen: str, usual: str = "") -> tuple[float, tuple[str, ...]]:
    """Return the reward among numbers, and none of their names; or NaN and the names, if it cannot be told.

    Args:
        chosen: the name that the user gave, or "".
        usual: the name that it has in this format, if there is one.

    Raises:
        ValueError: there is no number of the name that was chosen.
    """
    if chosen and chosen not in numbers:
        raise ValueError(f"has no number `{chosen}` (--reward), but: {', '.join(numbers) or 'none'}")
    name = chosen or usual
    if len(numbers) == 1:
        (name,) = numbers
    if name not in numbers:
        return math.nan, tuple(numbers)
    # That an answer is right or wrong is a reward as well, but only if the user says so.
    if chosen and isinstance(numbers[name], bool):
        return float(numbers[name]), ()
    # Alone: a dot in the name of a number does not lead to another.
    return get_reward({"reward": numbers[name]}, "reward"), ()


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


def one_rollout(conversation: list[dict[str, Any]], reward: float, group: Mapping[str, Any], **facts: Any) -> Row:
    """Return a rollout as a group of its own; `import_records` joins those of the same question.

    Args:
        reward: the source's, which is the score as well; NaN: unknown, as is an infinite one.
        group: values of the group; None and "" are none. Without `phase`, the record does not say it. `uid` is the
            source's own id of the group: without one, rollouts with equal prompts are a group.
        facts: other values of the rollout; None is none.
    """
    if not math.isfinite(reward):
        reward = math.nan
    scores = dict.fromkeys(("score", "reward", "base_score"), reward)
    status = Status.UNSCORED if math.isnan(reward) else Status.OK
    known = {name: value for name, value in facts.items() if value is not None}
    rollout = {"repetition": 0, **scores, "status": status, "conversation": conversation, **known}
    known = {name: value for name, value in group.items() if value is not None and value != ""}
    # A single rollout has no outcome and no signal: `import_records` sets these, and the id, once the group is whole.
    values = {"run_id": "", "task": ENVIRONMENT, "phase": Phase.TRAIN, **known}
    values |= {"group_id": "", "environment": ENVIRONMENT, "item_id": values["task"], "outcome": "mixed"}
    values |= {"no_signal": False, "rollouts": [rollout]}
    return Row(msgspec.convert(values, GroupRecord), "phase" in known)


def turns_of(prompt: str, response: str) -> list[dict[str, Any]]:
    """Return a response as its messages: the assistant's turns and, between them, what the model was shown.

    A text has several turns if what ends its prompt, as `<|im_start|>assistant`, comes again after another role's turn.
    """
    messages: list[dict[str, Any]] = []
    opening = _ASSISTANT.search(OPEN_THINK.sub("", prompt))
    place = 0
    if opening:
        words = re.escape(opening[0].strip())
        # A word that stands for a role is one only in a line of its own.
        if words.isalpha():
            words = f"^{words}$"
        again = re.compile(words + r"\n?", re.MULTILINE)
        while (shown := _OTHERS.search(response, place)) and (end := again.search(response, shown.end())):
            messages += [_message("assistant", response[place : shown.start()])]
            messages += [_message("user", response[shown.start() : end.end()])]
            place = end.end()
    # A turn that was opened and not taken is none.
    if response[place:].strip() or not messages:
        messages.append(_message("assistant", response[place:]))
    return messages


def _message(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def one_prompt(prompt: object, response: object) -> list[dict[str, Any]]:
    """Return the messages of a prompt that is one text, and of the response to it."""
    if isinstance(prompt, str) and isinstance(response, str):
        return [_message("user", prompt), *turns_of(prompt, response)]
    # Something else is refused where the group is made.
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]


def assistant_turns(conversation: Iterable[Mapping[str, Any]]) -> int:
    """Return the number of the assistant's messages."""
    return sum(message.get("role") == "assistant" for message in conversation)


def rest_after(text: str, *starts: str) -> str | None:
    """Return what follows the starts in a text, None if it does not begin with them. White space does not count, since
    a tokenizer decodes a text and its parts with different spaces.

    >>> rest_after("Q a, why?", "Q", "a"), rest_after("Qa", "Q", "b")
    (', why?', None)
    """
    place = 0
    for word in " ".join(starts).split():
        while text[place : place + 1].isspace():
            place += 1
        if not text.startswith(word, place):
            return None
        place += len(word)
    return text[place:]


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
