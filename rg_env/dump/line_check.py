"""What a line must look like, derived from the dataclasses of `schema`, and what no record can say.

Invariant: whatever the writer can have written passes; what does not pass was damaged or changed afterwards. Nothing
here depends on a run's settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import orjson

from rg_env.dump.codec import BadLineError
from rg_env.dump.schema import (
    ADDED_IN,
    GroupRecord,
    LedgerRecord,
    Message,
    Phase,
    TrainedRecord,
    group_id,
    has_no_signal,
)
from rg_env.scoring.types import Status

_CLOSE = 1e-9


class FaultyRecordError(BadLineError):
    """A line that is whole as JSON and yet no record that a run can have written."""


def check_shape(wire: Mapping[str, Any], kind: type[GroupRecord | LedgerRecord | TrainedRecord]) -> None:
    """Check that a decoded line has exactly the keys and types of a record of this kind, as files have them.

    Lines of an older version may lack what was added since.

    Raises:
        FaultyRecordError: naming the first place that does not fit.
    """
    version = wire.get("schema_version")
    hint: Any = kind
    problem = _checker(hint, version if isinstance(version, int) else 0)(wire, "")
    if problem is not None:
        raise FaultyRecordError(problem)


_Checker = Callable[[object, str], str | None]
"""Takes a value and its place, returns what is wrong with it."""


@cache
def _checker(hint: Any, version: int) -> _Checker:
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        parts = {field.name: _checker(hints[field.name], version) for field in fields(hint)}
        return _object_checker(parts, {name for name in parts if ADDED_IN.get(name, 0) > version})
    if hint == Message:
        return _object_checker({"role": _checker(str, version), "content": _checker(str, version)}, set())
    if get_origin(hint) is Sequence:
        (part,) = get_args(hint)
        return _list_checker(_checker(part, version))
    return _value_checker(_written_types(hint))


def _object_checker(parts: Mapping[str, _Checker], optional: Collection[str]) -> _Checker:
    def check(value: object, where: str) -> str | None:
        if not isinstance(value, Mapping):
            return f"`{where}` is no object"
        prefix = f"{where}." if where else ""
        for name, check_part in parts.items():
            if name not in value:
                if name in optional:
                    continue
                return f"has no `{prefix}{name}`"
            if problem := check_part(value[name], prefix + name):
                return problem
        for name in value:
            if name not in parts:
                return f"has `{prefix}{name}`, which is no part of a record"
        return None

    return check


def _list_checker(check_part: _Checker) -> _Checker:
    def check(value: object, where: str) -> str | None:
        if not isinstance(value, list):
            return f"`{where}` is no list"
        for number, part in enumerate(value):
            if problem := check_part(part, where):
                return f"{problem} (number {number} of its list)"
        return None

    return check


def _value_checker(types: frozenset[type[Any]]) -> _Checker:
    def check(value: object, where: str) -> str | None:
        return None if type(value) in types else f"`{where}` is {value!r:.40}"

    return check


def _written_types(hint: Any) -> frozenset[type[Any]]:
    """The types that the codec writes for a field of this type: no null for strings, null for numbers not finite."""
    options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    types = {str if issubclass(option, str) else option for option in options}
    if str in types:
        return frozenset({str})
    return frozenset(types | {int, NoneType} if float in types else types)


def check_group(group: GroupRecord) -> None:
    """Check that a group agrees with itself.

    Raises:
        FaultyRecordError: naming what does not.
    """
    for number, rollout in enumerate(group.rollouts):
        if not rollout.conversation or rollout.conversation[-1]["role"] != "assistant":
            raise FaultyRecordError(f"rollout {number} does not end with the assistant's response")
        if (rollout.answer is None) != (rollout.violation is not None):
            raise FaultyRecordError(f"rollout {number} has both an answer and a violation, or neither")
    for name in ("entry", "task_config"):
        try:
            orjson.loads(getattr(group, name))
        except orjson.JSONDecodeError as error:
            raise FaultyRecordError(f"`{name}` is no JSON ({error})") from None
    _check_numbers(LedgerRecord.of(group, None, None))


def check_ledger(record: LedgerRecord) -> None:
    """Check that a line of the ledger agrees with itself.

    Raises:
        FaultyRecordError: naming what does not.
    """
    if (record.text is None) == (record.text_reason is None):
        raise FaultyRecordError("says both where the text is and why it is nowhere, or neither")
    _check_numbers(record)


def check_trained(record: TrainedRecord) -> None:
    """Check what a line of a step's training batch says.

    Raises:
        FaultyRecordError: no rollout was trained on, or its group is of another run.
    """
    if not record.group_id.startswith(f"{record.run_id}:"):
        raise FaultyRecordError(f"`group_id` is {record.group_id!r}, a group of another run than {record.run_id!r}")
    if record.rollouts < 1:
        raise FaultyRecordError(f"`rollouts` is {record.rollouts}, less than 1")


def _check_numbers(record: LedgerRecord) -> None:
    if record.phase not in tuple(Phase):
        raise FaultyRecordError(f"`phase` is {record.phase!r}")
    if record.group_id != group_id(record.run_id, record.attempt, record.phase, record.call, record.uid):
        raise FaultyRecordError(f"`group_id` is {record.group_id!r}, which its parts do not make")
    if len({len(getattr(record, name)) for name in _columns()}) > 1:
        raise FaultyRecordError("does not have as many of each number as it has rollouts")
    for number in range(len(record.score)):
        if problem := _wrong_number(record, number):
            raise FaultyRecordError(f"rollout {number}: {problem}")
    if all(map(math.isfinite, record.reward)) and record.no_signal != has_no_signal(record.reward):
        raise FaultyRecordError(f"`no_signal` is {record.no_signal}, which its rewards are not")


@cache
def _columns() -> list[str]:
    """The fields of a ledger line that have one element for each rollout."""
    return [name for name, hint in get_type_hints(LedgerRecord).items() if get_origin(hint) is Sequence]


def _wrong_number(record: LedgerRecord, k: int) -> str | None:
    """What cannot be about rollout *k*, by the definition of its four numbers."""
    raw, tagged, base = record.raw_score[k], record.tagged_score[k], record.base_score[k]
    score, factor = record.score[k], record.penalty_factor[k]
    numbers = {"raw_score": raw, "tagged_score": tagged, "base_score": base, "score": score, "penalty_factor": factor}
    for name, value in numbers.items():
        if value is not None and not 0 <= value <= 1:  # NaN too
            return f"`{name}` is {value}, outside [0, 1]"
    if record.violation[k] is not None or record.status[k] is not Status.OK:
        if base != 0 or raw is not None or tagged is not None:
            return "has scores although nothing was scored"
    elif raw is None or tagged is None:
        return "has no scores, and neither a violation nor a status says why"
    elif base != max(raw, tagged):
        return f"`base_score` is {base}, not the higher of {raw} and {tagged}"
    if not math.isclose(score, base * factor, abs_tol=_CLOSE):
        return f"`score` is {score}, not {base} × {factor}"
    return None
