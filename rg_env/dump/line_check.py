"""Checks the shape of a line, derived from the dataclasses of `schema`, and the consistency of its values.

Invariant: everything that the writer can write passes; a line that fails was damaged or changed afterwards. Nothing
here depends on a run's settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING
from types import NoneType
from typing import Any

import orjson

from rg_env.dump.codec import BadLineError, Record
from rg_env.dump.columns import Column, layout_of, per_class
from rg_env.dump.schema import (
    MESSAGE_KEYS,
    GroupFacts,
    GroupRecord,
    LedgerRecord,
    LevelRecord,
    Phase,
    RolloutFacts,
    TrainedRecord,
    answered,
    group_id,
    has_no_signal,
)
from rg_env.scoring.base_score import base_score
from rg_env.scoring.types import Status

_CLOSE = 1e-9


class FaultyRecordError(BadLineError):
    """A line that is valid JSON, but not a record that a run can have written."""


def check_shape(wire: Mapping[str, Any], kind: type[Record]) -> None:
    """Check that a decoded line has exactly the keys and types of a record of this kind, as files have them.

    Raises:
        FaultyRecordError: naming the first place that does not fit.
    """
    problem = _checker(kind)(wire, "")
    if problem is not None:
        raise FaultyRecordError(problem)


_Checker = Callable[[object, str], str | None]
"""Takes a value and its place, returns what is wrong with it."""


@per_class
def _checker(kind: Any) -> _Checker:
    layout = layout_of(kind)
    parts = {name: _value_checker(column) for name, column in layout.columns.items()}
    parts |= {name: _list_checker(_check_message) for name in layout.conversations}
    optional = {name for name, column in layout.columns.items() if column.default is not MISSING}
    if (rollouts := layout.rollouts) is not None:
        if rollouts.as_columns:
            columns = layout_of(rollouts.record).columns
            parts |= {name: _list_checker(_value_checker(column)) for name, column in columns.items()}
            return _both(_object_checker(parts, optional), _length_checker(columns))
        parts[rollouts.name] = _list_checker(_checker(rollouts.record))
    return _object_checker(parts, optional)


def _object_checker(parts: Mapping[str, _Checker], optional: Collection[str] = ()) -> _Checker:
    def check(value: object, where: str) -> str | None:
        if not isinstance(value, Mapping):
            return f"`{where}` is not an object"
        prefix = f"{where}." if where else ""
        for name, check_part in parts.items():
            if name not in value and name in optional:
                continue
            if name not in value:
                return f"has no `{prefix}{name}`"
            if problem := check_part(value[name], prefix + name):
                return problem
        for name in value:
            if name not in parts:
                return f"has `{prefix}{name}`, which is not part of a record"
        return None

    return check


def _list_checker(check_part: _Checker) -> _Checker:
    def check(value: object, where: str) -> str | None:
        if not isinstance(value, list):
            return f"`{where}` is not a list"
        for number, part in enumerate(value):
            if problem := check_part(part, where):
                return f"{problem} (number {number} of its list)"
        return None

    return check


def _length_checker(names: Collection[str]) -> _Checker:
    def check(value: Any, _: str) -> str | None:
        return (
            None
            if len({len(value[name]) for name in names if name in value}) == 1
            else "has lists of different lengths"
        )

    return check


def _both(first: _Checker, second: _Checker) -> _Checker:
    return lambda value, where: first(value, where) or second(value, where)


def _value_checker(column: Column) -> _Checker:
    types: set[type[Any]] = {str} if column.is_text else {column.type}
    if column.type is float:
        types.add(int)
    if column.may_be_null:
        types.add(NoneType)

    def check(value: object, where: str) -> str | None:
        return None if type(value) in types else f"`{where}` is {value!r:.40}"

    return check


def _check_text(value: object, where: str) -> str | None:
    return None if type(value) is str else f"`{where}` is {value!r:.40}"


_check_message = _object_checker(dict.fromkeys(MESSAGE_KEYS, _check_text))


def check_group(group: GroupRecord) -> None:
    """Check that a group is consistent.

    Raises:
        FaultyRecordError: naming what is not.
    """
    for number, rollout in enumerate(group.rollouts):
        if not rollout.conversation or rollout.conversation[-1]["role"] != "assistant":
            raise FaultyRecordError(f"rollout {number} does not end with the assistant's response")
        explained = rollout.violation is not None or rollout.status is Status.NO_RESPONSE
        if (rollout.answer is None) != explained:
            raise FaultyRecordError(f"rollout {number} has both an answer and a violation, or neither")
    _check_facts(group)


def check_ledger(record: LedgerRecord) -> None:
    """Check that a ledger record is consistent.

    Raises:
        FaultyRecordError: naming what is not.
    """
    if (record.text is None) == (record.text_reason is None):
        raise FaultyRecordError("has both `text` and `text_reason`, or neither")
    _check_facts(record)


def check_trained(record: TrainedRecord) -> None:
    """Check a line of a step's training batch.

    Raises:
        FaultyRecordError: no rollout was trained on, or its group is of another run.
    """
    if not record.group_id.startswith(f"{record.run_id}:"):
        raise FaultyRecordError(f"`group_id` is {record.group_id!r}, a group of another run than {record.run_id!r}")
    if record.rollouts < 1:
        raise FaultyRecordError(f"`rollouts` is {record.rollouts}, less than 1")


def check_level(record: LevelRecord) -> None:
    """Check a move of a level.

    Raises:
        FaultyRecordError: a number is outside [0, 1], or the level did not move.
    """
    for name in ("before", "after", "solve_rate", "lower", "upper"):
        value = getattr(record, name)
        if value is not None and not 0 <= value <= 1:  # NaN too
            raise FaultyRecordError(f"`{name}` is {value}, outside [0, 1]")
    if record.before == record.after:
        raise FaultyRecordError(f"`after` is {record.after}, the same as `before`")


def _check_facts(group: GroupRecord | LedgerRecord) -> None:
    for name in _json_fields(type(group)):
        value = getattr(group, name)
        try:
            orjson.loads("null" if value is None else value)
        except orjson.JSONDecodeError as error:
            raise FaultyRecordError(f"`{name}` is not JSON ({error})") from None
    if group.item_id != group.task:
        raise FaultyRecordError(f"`item_id` is {group.item_id!r}, not the task's name {group.task!r}")
    if group.phase not in tuple(Phase):
        raise FaultyRecordError(f"`phase` is {group.phase!r}")
    if group.group_id != group_id(group.run_id, group.attempt, group.phase, group.call, group.uid):
        raise FaultyRecordError(f"`group_id` is {group.group_id!r}, which does not fit its parts")
    for name in ("baseline", "complexity", "draw_probability"):
        value = getattr(group, name)
        if value is not None and not 0 <= value <= 1:
            raise FaultyRecordError(f"`{name}` is {value}, outside [0, 1]")
    if problem := _wrong_times(group):
        raise FaultyRecordError(problem)
    for number, rollout in enumerate(group.rollouts):
        if problem := _wrong_number(group, rollout):
            raise FaultyRecordError(f"rollout {number}: {problem}")
    rewards = [rollout.reward for rollout in answered(group.rollouts)]
    if all(map(math.isfinite, rewards)) and group.no_signal != has_no_signal(rewards):
        raise FaultyRecordError(f"`no_signal` is {group.no_signal}, which does not fit its rewards")


@per_class
def _json_fields(kind: Any) -> list[str]:
    return [name for name, column in layout_of(kind).columns.items() if column.is_json]


def _wrong_times(group: GroupFacts) -> str | None:
    """How the times of a group contradict each other, or None."""
    if group.started_at is not None and group.ended_at is not None and group.ended_at < group.started_at:
        return f"`ended_at` is {group.ended_at}, before `started_at`, {group.started_at}"
    for name in ("generation_seconds", "scoring_seconds"):
        value = getattr(group, name)
        if value is not None and not value >= 0:  # NaN too
            return f"`{name}` is {value}, less than 0"
    return None


def _wrong_number(group: GroupFacts, rollout: RolloutFacts) -> str | None:
    """How a rollout's numbers contradict their definitions, or None."""
    raw, tagged, base = rollout.raw_score, rollout.tagged_score, rollout.base_score
    score, factor = rollout.score, rollout.penalty_factor
    numbers = {"raw_score": raw, "tagged_score": tagged, "base_score": base, "score": score, "penalty_factor": factor}
    for name, value in numbers.items():
        if value is not None and not 0 <= value <= 1:  # NaN too
            return f"`{name}` is {value}, outside [0, 1]"
    if rollout.violation is not None and rollout.status is Status.NO_RESPONSE:
        return "has a violation although there is no response"
    if rollout.violation is not None or rollout.status not in (Status.OK, Status.REWARD_ERROR):
        if base != 0 or raw is not None or tagged is not None:
            return "has scores although nothing was scored"
    elif raw is None or tagged is None:
        return "has no scores, and neither a violation nor a status explains it"
    elif not math.isclose(base, right := base_score(group.task, raw, tagged, group.baseline), abs_tol=_CLOSE):
        return f"`base_score` is {base}, not {right:g}: raw {raw}, tagged {tagged}, baseline {group.baseline}"
    if not math.isclose(score, base * factor, abs_tol=_CLOSE):
        return f"`score` is {score}, not {base} × {factor}"
    return None
