"""Records to JSON lines and back.

Invariant: a line's keys are always the same, in the same order, and a key's value never changes its type, so that
`datasets`, pandas, polars and DuckDB load a file unchanged. Strings are never null: the empty string stands for "none"
(no field has a use for both). Numbers are null where nothing was measured (`raw_score` and `tagged_score` after a
violation, `step` outside training) and where they are not finite; such a null is read back as NaN where a number is
due. Scores are always written as floats. A whole number (`step`, a length) beyond 64 bits is refused.
It does not cover numbers that are null in every line a library guesses types from: polars looks at 100 lines (a full
batch of the default size; `infer_schema_length=None` looks at all), `datasets` at the first 10 MB of the first file.

What goes in comes out, strings that UTF-8 cannot carry too (`rg_env.dump.strings`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import orjson

from rg_env.dump.files import DumpFile
from rg_env.dump.schema import (
    SCHEMA_VERSION,
    FileKind,
    GroupRecord,
    LedgerRecord,
    Message,
    NotKept,
    Outcome,
    Phase,
    RolloutRecord,
    TrainedRecord,
    has_no_signal,
    outcome_of,
)
from rg_env.dump.strings import INTRODUCER_UTF8, escape, map_strings, unescape
from rg_env.errors import DumpError
from rg_env.scoring.types import Status, Violation

Wire = dict[str, Any]


class BadLineError(ValueError):
    """A line that is no record; the message says why."""


class NewerSchemaError(DumpError):
    """A line written by a later version of rg_env, whose meaning this one does not know."""


# -- writing


def to_line(record: GroupRecord | LedgerRecord | TrainedRecord) -> bytes:
    """The record as one line of JSON Lines, with its line feed."""
    return _encode(_to_wire(record)) + b"\n"


def _to_wire(record: GroupRecord | LedgerRecord | TrainedRecord) -> Wire:
    match record:
        case GroupRecord():
            return _group_to_wire(record)
        case LedgerRecord():
            return _ledger_to_wire(record)
        case TrainedRecord():
            return _trained_to_wire(record)


def _encode(wire: Mapping[str, Any]) -> bytes:
    try:
        line = orjson.dumps(wire)
    except orjson.JSONEncodeError:
        return orjson.dumps(map_strings(wire, escape))
    return line if INTRODUCER_UTF8 not in line else orjson.dumps(map_strings(wire, escape))


def _group_to_wire(group: GroupRecord) -> Wire:
    return {
        "item_id": group.item_id,
        "schema_version": group.schema_version,
        "group_id": group.group_id,
        "run_id": group.run_id,
        "attempt": group.attempt,
        "phase": str(group.phase),
        "step": group.step,
        "call": group.call,
        "uid": group.uid,
        "task": group.task,
        "task_config": group.task_config,
        "level": group.level or "",
        "entry": group.entry,
        "outcome": str(group.outcome),
        "no_signal": group.no_signal,
        "rollouts": [_rollout_to_wire(rollout) for rollout in group.rollouts],
    }


def _rollout_to_wire(rollout: RolloutRecord) -> Wire:
    return {
        "conversation": [{"role": m["role"], "content": m["content"]} for m in rollout.conversation],
        "score": _number(rollout.score),
        "reward": _number(rollout.reward),
        "base_score": _number(rollout.base_score),
        "raw_score": _number(rollout.raw_score),
        "tagged_score": _number(rollout.tagged_score),
        "violation": str(rollout.violation or ""),
        "status": str(rollout.status),
        "detail": rollout.detail,
        "answer": rollout.answer or "",
        "response_tokens": rollout.response_tokens,
        "stop_reason": rollout.stop_reason or "",
        "truncated": rollout.truncated,
        "penalty_factor": _number(rollout.penalty_factor),
        "repetition": rollout.repetition,
        "policy_version": rollout.policy_version or "",
        "normalised": rollout.normalised,
    }


def _ledger_to_wire(record: LedgerRecord) -> Wire:
    return {
        "item_id": record.item_id,
        "schema_version": record.schema_version,
        "group_id": record.group_id,
        "run_id": record.run_id,
        "attempt": record.attempt,
        "phase": str(record.phase),
        "step": record.step,
        "call": record.call,
        "uid": record.uid,
        "task": record.task,
        "level": record.level or "",
        "outcome": str(record.outcome),
        "no_signal": record.no_signal,
        "text": str(record.text or ""),
        "text_reason": str(record.text_reason or ""),
        "repetition": list(record.repetition),
        "score": [_number(x) for x in record.score],
        "reward": [_number(x) for x in record.reward],
        "base_score": [_number(x) for x in record.base_score],
        "raw_score": [_number(x) for x in record.raw_score],
        "tagged_score": [_number(x) for x in record.tagged_score],
        "violation": [str(x or "") for x in record.violation],
        "status": [str(x) for x in record.status],
        "response_tokens": list(record.response_tokens),
        "stop_reason": [x or "" for x in record.stop_reason],
        "truncated": list(record.truncated),
        "penalty_factor": [_number(x) for x in record.penalty_factor],
        "policy_version": [x or "" for x in record.policy_version],
        "normalised": list(record.normalised),
    }


def _trained_to_wire(record: TrainedRecord) -> Wire:
    return {
        "schema_version": record.schema_version,
        "run_id": record.run_id,
        "attempt": record.attempt,
        "step": record.step,
        "group_id": record.group_id,
        "rollouts": record.rollouts,
    }


def _number(value: float | None) -> float | None:
    try:
        return float(value) if value is not None and math.isfinite(value) else None
    except OverflowError:  # an int beyond what a float can be
        return None


# -- reading


def from_line(line: bytes, *, run_id: str = "", group_id: str = "", phase: str = Phase.TRAIN) -> GroupRecord:
    """The group in a line of a text file, ours or Atropos'.

    Args:
        line: one line; the line feed may be there.
        run_id: for lines that do not carry it.
        group_id: for lines that do not carry it.
        phase: for lines that do not carry it.

    Returns:
        the group. What an Atropos line lacks is filled in with what follows from its scores (`base_score`, `reward`,
        outcome) or with the value that says "unknown".

    Raises:
        BadLineError: the line is torn, glued to another, or no group.
        NewerSchemaError: the line needs a later version of rg_env.
    """
    wire = _decode(line)
    with _Shape():
        if not isinstance(wire["rollouts"], list):
            raise BadLineError("`rollouts` is not a list")
        rollouts = [_rollout_from_wire(rollout, number) for number, rollout in enumerate(wire["rollouts"])]
        item_id = str(wire["item_id"])
        base_scores = [rollout.base_score for rollout in rollouts]
        rewards = [rollout.reward for rollout in rollouts]
        return GroupRecord(
            item_id=item_id,
            schema_version=wire.get("schema_version", 0),
            group_id=str(wire.get("group_id", group_id)),
            run_id=str(wire.get("run_id", run_id)),
            attempt=wire.get("attempt", 1),
            phase=str(wire.get("phase", phase)),
            step=wire.get("step"),
            call=wire.get("call", 0),
            uid=str(wire.get("uid", "")),
            task=str(wire.get("task", item_id)),
            task_config=wire.get("task_config", "{}"),
            level=wire.get("level") or None,
            entry=wire.get("entry", "{}"),
            outcome=Outcome(wire["outcome"]) if "outcome" in wire else outcome_of(base_scores),
            no_signal=wire.get("no_signal", has_no_signal(rewards)),
            rollouts=rollouts,
        )


def group_from(file: DumpFile, number: int, line: bytes) -> GroupRecord:
    """The group in a line of a text file; what Atropos leaves out follows from the file's name and the line's number.

    Raises:
        BadLineError, NewerSchemaError: as `from_line`.
    """
    phase = Phase.EVAL if file.kind is FileKind.EVAL else Phase.TRAIN
    return from_line(line, run_id=file.run_id, group_id=f"{file.path.stem}:{number}", phase=phase)


def ledger_from_line(line: bytes) -> LedgerRecord:
    """The group in a line of the ledger.

    Raises:
        BadLineError, NewerSchemaError: as `from_line`.
    """
    wire = _decode(line)
    with _Shape():
        return LedgerRecord(
            item_id=wire["item_id"],
            schema_version=wire["schema_version"],
            group_id=wire["group_id"],
            run_id=wire["run_id"],
            attempt=wire["attempt"],
            phase=wire["phase"],
            step=wire["step"],
            call=wire["call"],
            uid=wire["uid"],
            task=wire["task"],
            level=wire["level"] or None,
            outcome=Outcome(wire["outcome"]),
            no_signal=wire["no_signal"],
            text=FileKind(wire["text"]) if wire["text"] else None,
            text_reason=NotKept(wire["text_reason"]) if wire["text_reason"] else None,
            repetition=wire["repetition"],
            score=[_required(x) for x in wire["score"]],
            reward=[_required(x) for x in wire["reward"]],
            base_score=[_required(x) for x in wire["base_score"]],
            raw_score=wire["raw_score"],
            tagged_score=wire["tagged_score"],
            violation=[Violation(x) if x else None for x in wire["violation"]],
            status=[Status(x) for x in wire["status"]],
            response_tokens=wire["response_tokens"],
            stop_reason=[x or None for x in wire["stop_reason"]],
            truncated=wire["truncated"],
            penalty_factor=[_required(x) for x in wire["penalty_factor"]],
            policy_version=[x or None for x in wire["policy_version"]],
            normalised=wire.get("normalised") or [False] * len(wire["score"]),
        )


def trained_from_line(line: bytes) -> TrainedRecord:
    """The record in a line of a file of what was trained on.

    Raises:
        BadLineError, NewerSchemaError: as `from_line`.
    """
    wire = _decode(line)
    with _Shape():
        return TrainedRecord(
            schema_version=wire["schema_version"],
            run_id=wire["run_id"],
            attempt=wire["attempt"],
            step=wire["step"],
            group_id=wire["group_id"],
            rollouts=wire["rollouts"],
        )


def wire_of(line: bytes) -> Wire:
    """A line as the object that it holds, for checks of its very keys and types.

    Raises:
        BadLineError, NewerSchemaError: as `from_line`.
    """
    return _decode(line)


def _rollout_from_wire(wire: Wire, number: int) -> RolloutRecord:
    score = _required(wire["score"])
    violation = wire.get("violation")
    return RolloutRecord(
        conversation=[_message(message) for message in wire["conversation"]],
        score=score,
        reward=_required(wire.get("reward", score)),
        base_score=_required(wire.get("base_score", score)),
        raw_score=_measured(wire.get("raw_score")),
        tagged_score=_measured(wire.get("tagged_score")),
        violation=Violation(violation) if violation else None,
        status=Status(wire.get("status", Status.OK)),
        detail=wire.get("detail", ""),
        answer=wire.get("answer") or None,
        response_tokens=wire.get("response_tokens"),
        stop_reason=wire.get("stop_reason") or None,
        truncated=wire.get("truncated", False),
        penalty_factor=_required(wire.get("penalty_factor", 1.0)),
        repetition=wire.get("repetition", number),
        policy_version=wire.get("policy_version") or None,
        normalised=wire.get("normalised", False),
    )


def _message(wire: Wire) -> Message:
    role, content = wire["role"], wire["content"]
    if not isinstance(role, str) or not isinstance(content, str):
        raise BadLineError("a message's `role` and `content` must be strings")
    return {"role": role, "content": content}


def _required(value: object) -> float:
    """A number that every line has; null stands for one that was not finite."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadLineError(f"{value!r} where a number is due")
    return float(value)


def _measured(value: object) -> float | None:
    """A number that is null where nothing was measured."""
    return None if value is None else _required(value)


def _decode(line: bytes) -> Wire:
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
    if version and INTRODUCER_UTF8 in line:
        return map_strings(wire, unescape)
    return wire


def _decode_foreign(line: bytes) -> Any:
    """Atropos writes with Python's `json`: NaN, and escapes of lone surrogates, which orjson refuses."""
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
    """As orjson reads it: a number beyond 64 bits as a float."""
    value = int(digits)
    return value if -(2**63) <= value < 2**64 else float(digits)


class _Shape:
    """Turns what a wrongly shaped record raises while it is taken apart into `BadLineError`."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, KeyError):
            raise BadLineError(f"has no {error}") from None
        if isinstance(error, (TypeError, AttributeError, ValueError)) and not isinstance(error, BadLineError):
            raise BadLineError(f"no record: {error}") from None
