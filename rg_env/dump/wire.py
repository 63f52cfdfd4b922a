"""Records to JSON objects and back.

Each class has one writer and one reader, compiled from its fields as `dataclass` compiles `__init__`. No field is named
here, and the functions are as fast as handwritten ones (a loop over the fields takes three times as long).

Invariant: a string is never null, "" means None. A float field is always written as a float or null; null in a required
one is read as NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import MISSING
from itertools import repeat
from operator import itemgetter
from typing import Any

from rg_env.dump.columns import Column, layout_of, per_class
from rg_env.dump.schema import MESSAGE_KEYS, GroupFacts, RolloutFacts

Wire = dict[str, Any]
_GROUP_FACTS, _ROLLOUT_FACTS = tuple(layout_of(GroupFacts).columns), tuple(layout_of(RolloutFacts).columns)
_group_facts, _rollout_facts = itemgetter(*_GROUP_FACTS), itemgetter(*_ROLLOUT_FACTS)


class BadLineError(ValueError):
    """A line that is not a record; the message says why."""


def to_wire(record: Any) -> Wire:
    """The record as a JSON object."""
    wire: Wire = _writer(type(record))(record)
    return wire


def from_wire[R](kind: type[R], wire: Wire, missing: Callable[[], Wire] = dict) -> R:
    """The record in a JSON object. The rollouts of a `GroupRecord` must be decoded already.

    Args:
        missing: makes values for keys that the object lacks. Keys that it lacks as well get the fields' defaults.

    Raises:
        KeyError, TypeError, ValueError: it is not a record of this kind.
    """
    read = _reader(kind)
    try:
        record: R = read(wire)
    except KeyError:
        record = read({**_defaults(kind), **missing(), **wire})
    return record


def ledger_wire(group: Wire, text: str, place: tuple[int, int]) -> Wire:
    """The JSON object of a group's `LedgerRecord`, made from that of its `GroupRecord`."""
    wire = dict(zip(_GROUP_FACTS, _group_facts(group), strict=True))
    wire["text"], wire["text_reason"] = text, ""
    wire["text_batch"], wire["text_offset"] = place
    columns = zip(*map(_rollout_facts, group["rollouts"]), strict=True) if group["rollouts"] else repeat(())
    wire.update(zip(_ROLLOUT_FACTS, columns, strict=False))
    return wire


@per_class
def _writer(kind: Any) -> Callable[[Any], Any]:
    layout = layout_of(kind)
    scope: dict[str, Any] = {"as_float": _as_float}
    values = {name: _written(column, f"x.{name}") for name, column in layout.columns.items()}
    message = ", ".join(f"{key!r}: m[{key!r}]" for key in MESSAGE_KEYS)
    values |= {name: f"[{{{message}}} for m in x.{name}]" for name in layout.conversations}
    if (rollouts := layout.rollouts) is not None and rollouts.as_columns:
        columns = layout_of(rollouts.record).columns
        values |= {n: f"[{_written(column, f'r.{n}')} for r in x.{rollouts.name}]" for n, column in columns.items()}
    elif rollouts is not None:
        scope["write"] = _writer(rollouts.record)
        values[rollouts.name] = f"[write(r) for r in x.{rollouts.name}]"
    return _compiled("{" + ", ".join(f"{name!r}: {value}" for name, value in values.items()) + "}", scope)


def _written(column: Column, value: str) -> str:
    if column.type is float:
        return f"(v if (v := {value}) is None or type(v) is float else as_float(v))"
    return f"{value} or ''" if column.empty_means_none else value


@per_class
def _reader(kind: Any) -> Callable[[Wire], Any]:
    layout = layout_of(kind)
    scope: dict[str, Any] = {"text_of": _text_of}
    values = {name: _read(column, f"x[{name!r}]", scope) for name, column in layout.columns.items()}
    message = ", ".join(f"{key!r}: v if type(v := m[{key!r}]) is str else text_of(v)" for key in MESSAGE_KEYS)
    values |= {name: f"[{{{message}}} for m in x[{name!r}]]" for name in layout.conversations}
    if (rollouts := layout.rollouts) is not None:
        scope["read_columns"] = _columns_reader(rollouts.record)
        values[rollouts.name] = "read_columns(x)" if rollouts.as_columns else f"x[{rollouts.name!r}]"
    return _compiled(_call(kind, values, scope), scope)


@per_class
def _columns_reader(kind: Any) -> Callable[[Wire], Any]:
    columns = layout_of(kind).columns
    scope: dict[str, Any] = {"same_length": _same_length}
    values = {name: _read(column, name, scope) for name, column in columns.items()}
    lists = ", ".join(f"x[{name!r}]" for name in columns)
    read = _compiled(f"[{_call(kind, values, scope)} for {', '.join(columns)} in same_length({lists})]", scope)

    def read_columns(wire: Wire) -> Any:
        try:
            return read(wire)
        except KeyError:
            count = len(wire[next(iter(columns))])
            return read({name: [default] * count for name, default in _defaults(kind).items()} | wire)

    return read_columns


def _read(column: Column, value: str, scope: dict[str, Any]) -> str:
    if column.type is float:
        scope |= {"number": _number, "measured": _measured}
        return f"(v if type(v := {value}) is float else {'measured' if column.optional else 'number'}(v))"
    if not column.is_text:
        return value
    scope |= {column.type.__name__: column.type, "text": _text}
    read = "text" if column.type is str else column.type.__name__
    return f"({read}(v) if (v := {value}) else None)" if column.optional else f"{read}({value})"


def _call(kind: Any, values: dict[str, str], scope: dict[str, Any]) -> str:
    scope[kind.__name__] = kind
    return f"{kind.__name__}({', '.join(f'{name}={value}' for name, value in values.items())})"


def _compiled(expression: str, scope: dict[str, Any]) -> Callable[[Any], Any]:
    """A function of `x`. Expressions contain names of fields, never data."""
    function: Callable[[Any], Any] = eval(f"lambda x: {expression}", scope)
    return function


@per_class
def _defaults(kind: Any) -> Wire:
    columns = layout_of(kind).columns.values()
    values = {column.name: column.default for column in columns if column.default is not MISSING}
    values.pop("schema_version", None)  # a line without a version is not ours
    return values


def _same_length(*columns: list[Any]) -> Any:
    if len(set(map(len, columns))) > 1:
        raise BadLineError("its lists differ in length")
    return zip(*columns, strict=True)


def _as_float(value: Any) -> float | None:
    try:
        return float(value)
    except OverflowError:  # an int too large for a float
        return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _number(value: object) -> float:
    """A required number; null means that it was not finite."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadLineError(f"{value!r} where a number is required")
    return float(value)


def _measured(value: object) -> float | None:
    """An optional number; null means that nothing was measured."""
    return None if value is None else _number(value)


def _text_of(value: object) -> str:
    """The value of a message's key."""
    if not isinstance(value, str):
        raise BadLineError("a message's `role` and `content` must be strings")
    return value
