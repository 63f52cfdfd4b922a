"""Records to JSON lines and back.

Invariant: every line of a kind has the same keys in the same order, and a key's value never changes its type, so that
`datasets`, pandas, polars and DuckDB load a file unchanged. Strings are never null: the empty string means "none" (no
field needs both). Numbers are null if nothing was measured (`raw_score` and `tagged_score` after a violation, `step`
outside training) or if they are not finite; such a null is read back as NaN if the number is required. Scores are
always written as floats. A whole number (`step`, a length) beyond 64 bits is refused.
Not covered: numbers that are null in every line from which a library infers types. polars looks at 100 lines (a full
batch of the default size; `infer_schema_length=None` looks at all), `datasets` at the first 10 MB of the first file.

Records round-trip, including strings that UTF-8 cannot represent (`rg_env.dump.strings`), with two exceptions: a number
that is not finite comes back as NaN or None, and an empty string in an optional field as None.

No field is named here: keys and types are those of the dataclasses in `schema`, which msgspec fills and checks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from functools import cache
from itertools import repeat
from operator import itemgetter
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import orjson

from rg_env.dump.schema import (
    MESSAGE_KEYS,
    SCHEMA_VERSION,
    VITAL,
    BadLineError,
    FileKind,
    GroupFacts,
    GroupRecord,
    Mark,
    Message,
    Phase,
    Place,
    Record,
    RolloutFacts,
    has_no_signal,
    marks_of,
    outcome_of,
)
from rg_env.dump.strings import escape, has_introducer, map_strings, unescape
from rg_env.errors import DumpError

Wire = dict[str, Any]


class NewerSchemaError(DumpError):
    """A line written by a later version of rg_env."""


@dataclass(frozen=True, slots=True)
class Column:
    """A field that holds one plain value.

    Attributes:
        type: bool, int, float, str or an enum of strings.
        optional: None is allowed, too.
        default: the field's default, `dataclasses.MISSING` if it has none.
    """

    name: str
    type: type[Any]
    optional: bool
    default: Any

    @property
    def empty_means_none(self) -> bool:
        """Whether the empty string in a file means None."""
        return issubclass(self.type, str) and self.optional

    @property
    def may_be_null(self) -> bool:
        """Whether files may contain null: for None, or for a number that is not finite."""
        return not issubclass(self.type, str) and (self.optional or self.type is float)

    @property
    def allowed(self) -> list[str] | None:
        """The strings that files may contain; None: any value of the type."""
        if not issubclass(self.type, StrEnum):
            return None
        return [*([""] if self.optional else []), *(member.value for member in self.type)]


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of a record's dataclass, by what lines have for them.

    Attributes:
        columns: plain values, by name, in the order of the fields.
        conversation: the field that holds messages, if there is one.
        rollouts: the class of the rollouts in the field of that name, if there is one.
        as_lists: whether the rollouts are written as one list per column, next to the columns.
        texts: names of the columns that may be None in a record, and are then empty in a line.
        numbers: names of the columns of numbers that are never None in a record, but NaN.
    """

    columns: Mapping[str, Column]
    conversation: str | None
    rollouts: type[RolloutFacts] | None
    as_lists: bool
    texts: Sequence[str]
    numbers: Sequence[str]


def layout_of(record: Any) -> Layout:
    """The layout of a record's class, inherited fields included."""
    return _layout_of(record)


@cache
def _layout_of(record: Any) -> Layout:
    types, marked = get_type_hints(record), get_type_hints(record, include_extras=True)
    columns: dict[str, Column] = {}
    conversation = rollouts = None
    as_lists = False
    for field in fields(record):
        hint = types[field.name]
        if get_origin(hint) is not Sequence:
            options = set(get_args(hint) or [hint])
            (scalar,) = options - {NoneType}
            columns[field.name] = Column(field.name, scalar, len(options) > 1, field.default)
        elif get_args(hint) == (Message,):
            conversation = field.name
        else:
            rollouts, as_lists = get_args(hint)[0], Mark.COLUMNS in marks_of(marked[field.name])
    every = columns.values()
    return Layout(
        columns,
        conversation,
        rollouts,
        as_lists,
        [column.name for column in every if column.empty_means_none],
        [column.name for column in every if column.type is float and not column.optional],
    )


# -- to lines


def to_line(record: Record) -> bytes:
    """The record as one line of JSON Lines, with its line feed."""
    return _line(_to_wire(record))


def group_lines(group: GroupRecord, text: FileKind, place: Place) -> tuple[bytes, bytes]:
    """The lines of `group` and of its `LedgerRecord`, which says that the former is at `place`."""
    wire = _to_wire(group)
    line = _line(wire)
    columns = zip(*map(_rollout_facts, wire["rollouts"]), strict=True) if group.rollouts else repeat(())
    rest = {"text": text, "text_reason": "", "text_batch": place[0], "text_offset": place[1]}
    rest |= zip(_ROLLOUT_FACTS, columns, strict=False)
    return line, line[: line.index(_AFTER_FACTS)] + b"," + _line(rest)[1:]  # the facts of the group are encoded once


_ROLLOUT_FACTS = tuple(layout_of(RolloutFacts).columns)
_rollout_facts = itemgetter(*_ROLLOUT_FACTS)
_AFTER_FACTS = f',"{list(layout_of(GroupRecord).columns)[len(layout_of(GroupFacts).columns)]}":'.encode()
"""What follows the facts in the line of a group, and nowhere before: within a string the quotes are escaped."""


def _to_wire(record: Record) -> Wire:
    kind: Any = type(record)
    return _writer(kind)(record)


@cache
def _writer(kind: Any) -> Callable[[Any], Wire]:
    """A function that makes JSON objects of records of a class.

    It is compiled, as `dataclass` compiles `__init__`: loops over the fields take twice as long. The expression
    contains names of fields, never data.
    """
    layout = layout_of(kind)
    scope: dict[str, Any] = {"as_float": _as_float}
    values = {name: _written(column, f"x.{name}") for name, column in layout.columns.items()}
    if layout.conversation is not None:
        message = ", ".join(f"{key!r}: m[{key!r}]" for key in MESSAGE_KEYS)
        values[layout.conversation] = f"[{{{message}}} for m in x.{layout.conversation}]"
    if layout.rollouts is not None and layout.as_lists:
        columns = layout_of(layout.rollouts).columns
        values |= {name: f"[{_written(column, f'r.{name}')} for r in x.rollouts]" for name, column in columns.items()}
    elif layout.rollouts is not None:
        of_rollout: Any = layout.rollouts
        scope["write"] = _writer(of_rollout)
        values["rollouts"] = "[write(r) for r in x.rollouts]"
    expression = ", ".join(f"{name!r}: {value}" for name, value in values.items())
    write: Callable[[Any], Wire] = eval(f"lambda x: {{{expression}}}", scope)
    return write


def _written(column: Column, value: str) -> str:
    if column.type is float:
        return f"(v if (v := {value}).__class__ is float or v is None else as_float(v))"
    return f"{value} or ''" if column.empty_means_none else value


def _as_float(value: Any) -> float | None:
    try:
        return None if value is None else float(value)
    except OverflowError:  # an int too large for a float
        return None


def _line(wire: Wire) -> bytes:
    try:
        line = orjson.dumps(wire, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:  # a string that UTF-8 cannot represent
        line = b""
    if line and not has_introducer(line):
        return line
    return orjson.dumps(map_strings(wire, escape), option=orjson.OPT_APPEND_NEWLINE)


# -- from lines


def from_line(
    line: bytes, *, run_id: str = "", group_id: str = "", phase: str = Phase.TRAIN, strict: bool = False
) -> GroupRecord:
    """The group in a line of a text file, ours or Atropos'.

    Args:
        line: one line, with or without its line feed.
        run_id, group_id, phase: values for lines without them.
        strict: see `record_from_line`; always for Atropos' lines.

    Returns:
        the group. Keys missing from an Atropos line are derived from its scores (`base_score`, `reward`, outcome) or
        have the field's default.

    Raises:
        BadLineError: the line is torn, joined to another, or not a group.
        NewerSchemaError: the line needs a later version of rg_env.
    """
    wire = wire_of(line)
    if not wire.get("schema_version"):
        strict = True
        wire = _completed(wire) | wire | {"schema_version": 0}
        wire = {"run_id": run_id, "group_id": group_id, "phase": phase, **wire, "item_id": str(wire["item_id"])}
    return _from_wire(GroupRecord, wire, strict)


def _completed(atropos: Wire) -> Wire:
    """What follows from the scores of an Atropos line."""
    try:
        rollouts, task = atropos["rollouts"], str(atropos["item_id"])
        for number, rollout in enumerate(rollouts):
            score = math.nan if rollout["score"] is None else rollout["score"]
            rollouts[number] = {"repetition": number, "reward": score, "base_score": score, **rollout}
        outcome = outcome_of([rollout["base_score"] for rollout in rollouts])
        no_signal = has_no_signal([rollout["reward"] for rollout in rollouts])
    except KeyError as error:
        raise BadLineError(f"has no {error}") from None
    except (TypeError, AttributeError) as error:
        raise BadLineError(f"not a record: {error}") from None
    return {"task": task, "outcome": outcome, "no_signal": no_signal}


def record_from_line[R: Record](kind: type[R], line: bytes, *, strict: bool = False) -> R:
    """The record of a class in a line that our writer wrote.

    Args:
        strict: a damaged value is an error, even if it is not one of `VITAL`.

    Raises:
        BadLineError, NewerSchemaError: as `from_line`.
    """
    wire = wire_of(line)
    if "schema_version" not in wire:
        raise BadLineError("has no 'schema_version'")
    return _from_wire(kind, wire, strict)


def unknown_keys(kind: type[Record], line: bytes) -> set[str]:
    """The keys of a line, and of its rollouts, that no field of the class has."""
    layout, wire = layout_of(kind), wire_of(line)
    known = {*layout.columns, *(["rollouts"] if layout.rollouts and not layout.as_lists else [])}
    found = set(wire)
    if layout.as_lists:
        known |= set(_ROLLOUT_FACTS)
    elif layout.rollouts is not None:
        of_rollout = {*layout_of(layout.rollouts).columns, "conversation"}
        known |= {f"rollouts[].{name}" for name in of_rollout}
        found |= {f"rollouts[].{name}" for rollout in wire["rollouts"] for name in rollout}
    return found - known


def _from_wire[R: Record](kind: type[R], wire: Wire, strict: bool) -> R:
    layout = layout_of(kind)
    try:
        if layout.rollouts is not None and layout.as_lists:
            wire["rollouts"] = _from_lists(wire, strict)
        _tidy(layout, wire)
        for rollout in wire["rollouts"] if layout.rollouts is not None else ():
            _tidy(layout_of(layout.rollouts), rollout)
        try:
            return msgspec.convert(wire, kind)
        except msgspec.ValidationError:
            if strict:
                raise
        _drop_damaged(layout, wire)
        for number, rollout in enumerate(wire["rollouts"] if layout.rollouts is not None else ()):
            _drop_damaged(layout_of(layout.rollouts), rollout)
            rollout.setdefault("repetition", number)
        return msgspec.convert(wire, kind)
    except KeyError as error:
        raise BadLineError(f"has no {error}") from None
    except (AttributeError, TypeError, msgspec.ValidationError) as error:
        raise BadLineError(f"not a record: {error}") from None


def _drop_damaged(layout: Layout, wire: Wire) -> None:
    """Remove damaged values that are not vital; those that a record has to have become unknown."""
    for name, column in layout.columns.items():
        if name in VITAL:
            continue
        try:
            msgspec.convert(wire[name], column.type | None if column.optional else column.type)
        except (KeyError, msgspec.ValidationError):
            wire.pop(name, None)
            if column.default is MISSING and name != "repetition":
                wire[name] = None if column.optional else _UNKNOWN[column.type]


_UNKNOWN: dict[type[Any], Any] = {float: math.nan, str: ""}


def _tidy(layout: Layout, wire: Wire) -> None:
    """Put None and NaN where a record has them."""
    for name in layout.texts:
        if wire.get(name) == "":
            wire[name] = None
    for name in layout.numbers:
        if wire.get(name, MISSING) is None:
            wire[name] = math.nan
    if layout.conversation is not None:
        wire[layout.conversation] = [
            {key: message[key] for key in MESSAGE_KEYS} for message in wire[layout.conversation]
        ]


def _from_lists(wire: Wire, strict: bool) -> list[Wire]:
    """The rollouts in a line with a list for each column."""
    names = [name for name in _ROLLOUT_FACTS if name in wire]
    count = len(wire["base_score"])
    fitting = [name for name in names if type(wire[name]) is list and len(wire[name]) == count]
    if lost := [name for name in names if name not in fitting and (strict or name in VITAL)]:
        raise BadLineError(f"its lists differ in length: `{lost[0]}`")
    return [dict(zip(fitting, values, strict=True)) for values in zip(*map(wire.__getitem__, fitting), strict=True)]


def wire_of(line: bytes) -> Wire:
    """A line decoded as a JSON object.

    Raises:
        BadLineError, NewerSchemaError: as `from_line`.
    """
    try:
        wire = orjson.loads(line)
    except orjson.JSONDecodeError:
        wire = _decode_foreign(line)
    if not isinstance(wire, dict):
        raise BadLineError("not a JSON object")
    version = wire.get("schema_version", 0)
    if not isinstance(version, int):
        raise BadLineError("`schema_version` is not a whole number")
    if version > SCHEMA_VERSION:
        raise NewerSchemaError(
            f"written with schema version {version}; this rg_env reads up to {SCHEMA_VERSION}: update rg_env"
        )
    if version and has_introducer(line):
        return map_strings(wire, unescape)
    return wire


def _decode_foreign(line: bytes) -> Any:
    """Atropos writes with Python's `json`, whose NaN and escapes of lone surrogates orjson refuses."""
    if b"\0" in line:
        raise BadLineError("filled with NUL bytes")
    try:
        return json.loads(line, parse_int=_whole_number)
    except json.JSONDecodeError as error:
        why = "more than one record" if error.msg == "Extra data" else "torn"
        raise BadLineError(f"{why}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise BadLineError(str(error)) from None


def _whole_number(digits: str) -> int | float:
    """The number as orjson reads it: a float if it is beyond 64 bits."""
    value = int(digits)
    return value if -(2**63) <= value < 2**64 else float(digits)
