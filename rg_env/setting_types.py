"""How settings are declared, each once, in a field of a dataclass, and how a value is checked by it. Needs no SkyRL."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from rg_env.errors import did_you_mean, need, need_number, refuse


def setting(default: Any, **limits: Any) -> Any:
    """A field and its limits, as `check_value` takes them."""
    return dataclasses.field(default=default, metadata=limits)


def check_fields(config: Any, prefix: str) -> None:
    """Check every field of a config by its declared type and limits; names begin with `prefix`. Raises ConfigError."""
    for declared in dataclasses.fields(config):
        name, value = f"{prefix}.{declared.name}", getattr(config, declared.name)
        if dataclasses.is_dataclass(value):
            check_fields(value, name)
        else:
            check_value(name, value, declared.type, declared.metadata)


def check_value(name: str, value: Any, kind: Any, limits: Mapping[str, Any]) -> None:
    """Check a value by its declared type and limits.

    Args:
        name: of the setting, for the message.
        kind: the type of a field: bool, int, float, str, Any, Literal, lists and mappings of them, and unions.
        limits: `choices` (of texts), `filled` (no empty text), or the bounds of `need_number`. They hold for the items
            of a list or mapping.

    Raises:
        ConfigError: one line that names the setting, its value and what would be right.
    """
    is_union = isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union
    kinds = set(typing.get_args(kind)) if is_union else {kind}
    is_number = bool({int, float} & kinds)
    choices = typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else limits.get("choices", ())
    collection = next((option for option in kinds if (typing.get_origin(option) or option) in (list, dict)), None)
    if value is None:
        need({Any, type(None)} & kinds, name, value, "must have a value")
    elif Any in kinds or (bool in kinds and isinstance(value, bool)):
        return
    elif collection:
        _check_items(name, value, collection, limits)
    elif choices and (isinstance(value, str) or not is_number):
        _check_choice(name, value, choices, f", or a {'' if float in kinds else 'whole '}number" if is_number else "")
    elif is_number:
        bounds = {name: limit for name, limit in limits.items() if name != "choices"}
        need_number(name, value, whole=float not in kinds, **bounds)
    elif bool in kinds:
        refuse(name, value, "must be true or false")
    else:
        need(isinstance(value, str), name, value, "must be a text; put it in quotes")
        need(value.strip() or not limits.get("filled"), name, value, "must not be empty")


def _check_choice(name: str, value: Any, choices: Iterable[str], or_number: str) -> None:
    choices = list(choices)
    if or_number:
        need(value in choices, name, value, f"must be {' or '.join(choices)}{or_number}")
    ok = isinstance(value, str) and value in choices
    hint = did_you_mean(value, choices, "") if isinstance(value, str) and len(choices) > 3 else ""
    need(ok, name, value, f"must be one of {', '.join(choices)}{hint}".removesuffix("; "))


def _check_items(name: str, value: Any, collection: Any, limits: Mapping[str, Any]) -> None:
    item_kind = (typing.get_args(collection) or (Any,))[-1]
    items: Iterable[tuple[Any, Any]]
    if (typing.get_origin(collection) or collection) is list:
        need(isinstance(value, (list, tuple)), name, value, f"must be a list; write [{value}]")
        items = enumerate(value)
    else:
        need(isinstance(value, Mapping), name, value, "must be a mapping, such as {name: value}")
        items = value.items()
    for key, item in items:
        check_value(f"{name}[{key}]", item, item_kind, limits)
