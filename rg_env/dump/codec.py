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

Keys and types are derived from the fields of `schema` (see `wire`).
"""

from __future__ import annotations

import json
from typing import Any

import orjson

from rg_env.dump.files import DumpFile
from rg_env.dump.schema import (
    SCHEMA_VERSION,
    FileKind,
    GroupRecord,
    LedgerRecord,
    LevelRecord,
    Phase,
    Place,
    RolloutRecord,
    TrainedRecord,
    has_no_signal,
    outcome_of,
)
from rg_env.dump.strings import escape, has_introducer, map_strings, unescape
from rg_env.dump.wire import BadLineError as BadLineError
from rg_env.dump.wire import Wire, from_wire, ledger_wire, to_wire
from rg_env.errors import DumpError

Record = GroupRecord | LedgerRecord | TrainedRecord | LevelRecord


class NewerSchemaError(DumpError):
    """A line written by a later version of rg_env."""


def to_line(record: Record) -> bytes:
    """The record as one line of JSON Lines, with its line feed."""
    return _line(to_wire(record))


def group_lines(group: GroupRecord, text: FileKind, place: Place) -> tuple[bytes, bytes]:
    """The lines of `group` and of its `LedgerRecord`, which says that the former is at `place`."""
    wire = to_wire(group)
    return _line(wire), _line(ledger_wire(wire, text, place))


def _line(wire: Wire) -> bytes:
    try:
        line = orjson.dumps(wire, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:  # a string that UTF-8 cannot represent
        line = b""
    if line and not has_introducer(line):
        return line
    return orjson.dumps(map_strings(wire, escape), option=orjson.OPT_APPEND_NEWLINE)


def from_line(line: bytes, *, run_id: str = "", group_id: str = "", phase: str = Phase.TRAIN) -> GroupRecord:
    """The group in a line of a text file, ours or Atropos'.

    Args:
        line: one line, with or without its line feed.
        run_id, group_id, phase: values for lines without them.

    Returns:
        the group. Keys missing from an Atropos line are derived from its scores (`base_score`, `reward`, outcome) or
        have the field's default.

    Raises:
        BadLineError: the line is torn, joined to another, or not a group.
        NewerSchemaError: the line needs a later version of rg_env.
    """
    wire = wire_of(line)
    with _Shape():
        if not isinstance(wire["rollouts"], list):
            raise BadLineError("`rollouts` is not a list")
        rollouts = [_rollout(rollout, number) for number, rollout in enumerate(wire["rollouts"])]

        def missing() -> Wire:
            return {
                "schema_version": 0,
                "group_id": group_id,
                "run_id": run_id,
                "phase": phase,
                "task": wire["item_id"],
                "outcome": outcome_of([rollout.base_score for rollout in rollouts]),
                "no_signal": has_no_signal([rollout.reward for rollout in rollouts]),
            }

        return from_wire(GroupRecord, {**wire, "rollouts": rollouts}, missing)


def _rollout(wire: Wire, number: int) -> RolloutRecord:
    def missing() -> Wire:
        return {"repetition": number, "reward": wire["score"], "base_score": wire["score"]}

    return from_wire(RolloutRecord, wire, missing)


def group_from(file: DumpFile, group_id: str, line: bytes) -> GroupRecord:
    """The group in a line of a text file. An Atropos line, which has none, gets this `group_id`.

    Raises:
        BadLineError, NewerSchemaError: as `from_line`.
    """
    phase = Phase.EVAL if file.kind is FileKind.EVAL else Phase.TRAIN
    return from_line(line, run_id=file.run_id, group_id=group_id, phase=phase)


def ledger_from_line(line: bytes) -> LedgerRecord:
    """The group in a line of the ledger.

    Raises:
        BadLineError, NewerSchemaError: as `from_line`.
    """
    return _own_line(line, LedgerRecord)


def trained_from_line(line: bytes) -> TrainedRecord:
    """The record in a line of a `trained` file.

    Raises:
        BadLineError, NewerSchemaError: as `from_line`.
    """
    return _own_line(line, TrainedRecord)


def level_from_line(line: bytes) -> LevelRecord:
    """The record in a line of a `levels` file.

    Raises:
        BadLineError, NewerSchemaError: as `from_line`.
    """
    return _own_line(line, LevelRecord)


def _own_line[R](line: bytes, kind: type[R]) -> R:
    wire = wire_of(line)
    with _Shape():
        return from_wire(kind, wire)


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


class _Shape:
    """Turns the errors that a malformed record raises into `BadLineError`."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, KeyError):
            raise BadLineError(f"has no {error}") from None
        if isinstance(error, (TypeError, AttributeError, ValueError)) and not isinstance(error, BadLineError):
            raise BadLineError(f"not a record: {error}") from None
