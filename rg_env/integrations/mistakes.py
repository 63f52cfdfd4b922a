"""What is wrong with the body of a request, as one line that says how to mend it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rg_env.errors import did_you_mean

_SAMPLE = 40
"""Characters that are shown of what a client has sent."""
_TYPES = {
    "string_type": "a string",
    "string_too_long": "a shorter string",
    "list_type": "a list",
    "dict_type": "an object",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
}
"""What a value has to be, by pydantic's name for the mistake."""
_NO_OBJECT = ("model_type", "model_attributes_type", "dict_type")

Mistake = Mapping[str, Any]
"""As pydantic describes it: `type`, `loc`, `msg`, `input`, `ctx`."""


def explain(mistakes: Sequence[Mistake], fields: Sequence[str]) -> str:
    """Return the first mistake.

    Args:
        mistakes: with `body` at the beginning of each `loc`, where FastAPI puts it.
        fields: what the body may have.
    """
    first = mistakes[0]
    kind = first["type"]
    if kind == "json_invalid":
        return f"the body is no JSON: {first['ctx']['error']} (character {first['loc'][-1]})"
    path = _path(first)
    # Listed behind most messages: what was missed is often a name that was misspelled.
    has = f"; it has {', '.join(fields)}" if fields else ""
    if not path:
        wrong = "must be a JSON object" if kind in _NO_OBJECT else first["msg"]
        if kind == "missing":
            return f"send a body, a JSON object{has}"
        return f"the body {wrong}, not {_shown(first['input'])}{has}"
    name = ".".join(path)
    if kind == "extra_forbidden":
        return f"{name} is unknown{did_you_mean(path[-1], fields, has.removeprefix('; '))}"
    if kind == "missing":
        return f"{name} is missing{has}"
    # A value that may be of several types has a mistake for each of them.
    wanted = dict.fromkeys(_wanted(mistake) for mistake in mistakes if _path(mistake)[:1] == path[:1])
    return f"{name} must be {' or '.join(wanted)}, not {_shown(first['input'])}"


def _path(mistake: Mistake) -> list[str]:
    """Where the mistake is, without the names that pydantic gives to alternatives."""
    # The first part is `body`.
    parts = [str(part) for part in mistake["loc"][1:]]
    # Of an alternative, the type stands at the end: `answer.str`, `answer.list[str]`.
    if len(parts) > 1 and parts[-1] in ("str", "int", "list[str]", "dict[str,any]"):
        return parts[:-1]
    return [part for part in parts if not part.startswith("list[")]


def _wanted(mistake: Mistake) -> str:
    kind = mistake["type"]
    if kind == "string_type" and "list[str]" in mistake["loc"]:
        return "a list of strings"
    if kind == "enum":
        return str(mistake["ctx"]["expected"]).replace("'", "")
    return _TYPES.get(kind) or str(mistake["msg"]).removeprefix("Input should be ")


def _shown(value: object) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    # The value is text of the client, so it is shown in ASCII, and never whole.
    shown = json.dumps(value, default=str)
    return shown if len(shown) <= _SAMPLE else f"{shown[:_SAMPLE]}…"
