"""Records to JSON lines and back.

Every line of a kind has the same keys in the same order, and a key's value never changes its type, so that `datasets`,
pandas, polars and DuckDB load a file unchanged. A line that does not fit its class exactly is damaged.

Not covered: numbers that are null in every line from which a library infers types. polars looks at 100 lines (a full
file of the default size; `infer_schema_length=None` looks at all), `datasets` at the first 10 MB of the first file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import inspect

from rg_env.dump.schema import (
    GROUP_FACTS,
    ROLLOUT_FACTS,
    SCHEMA_VERSION,
    FileKind,
    GroupRecord,
    Record,
)
from rg_env.errors import DumpError


class BadLineError(ValueError):
    """A line that is not a record; the message says why."""


class NewerSchemaError(DumpError):
    """A line written by a later version of rg_env."""


_encode = msgspec.json.Encoder().encode
_group_facts = attrgetter(*GROUP_FACTS)
_rollout_facts = attrgetter(*ROLLOUT_FACTS)


def to_line(record: Record) -> bytes:
    """The record as one line of JSON Lines, with its line feed."""
    return _encode(record) + b"\n"


def ledger_line(group: GroupRecord, text: FileKind | None, reason: str = "") -> bytes:
    """The ledger's line of `group`, whose text is in a file of the kind `text`, or in none for a reason."""
    facts: dict[str, Any] = dict(zip(GROUP_FACTS, _group_facts(group), strict=True))
    facts |= {"text": text or "", "text_reason": reason}
    columns = zip(*map(_rollout_facts, group.rollouts), strict=True) if group.rollouts else [()] * len(ROLLOUT_FACTS)
    return _encode(facts | dict(zip(ROLLOUT_FACTS, columns, strict=True))) + b"\n"


def from_line[R: Record](kind: type[R], line: bytes) -> R:
    """The record of a class, such as `FileKind.LEDGER.record`, in a line.

    Raises:
        BadLineError: the line is torn, joined to another, or does not fit.
        NewerSchemaError: it needs a later version of rg_env.
    """
    try:
        record: R = _decoder(kind).decode(line)
    except msgspec.ValidationError as error:
        _refuse_newer(line)
        raise BadLineError(f"not a record: {error}") from None
    except (ValueError, RecursionError) as error:  # of all that msgspec raises, UnicodeDecodeError is a ValueError, too
        raise BadLineError(f"torn or joined to another: {error}") from None
    if record.schema_version > SCHEMA_VERSION:
        _refuse_newer(line)
    return record


def _refuse_newer(line: bytes) -> None:
    try:
        version: int = _decoder(Record).decode(line).schema_version
    except (ValueError, RecursionError):
        return
    if version > SCHEMA_VERSION:
        raise NewerSchemaError(
            f"written with schema version {version}; this rg_env reads up to {SCHEMA_VERSION}: update rg_env"
        )


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


@dataclass(frozen=True, slots=True)
class Column:
    """A key of a line that holds a plain value (bool, int, float or str), or a list of them."""

    type: type[Any]
    is_list: bool


@cache
def columns_of(record: Any) -> dict[str, Column]:
    """The columns of a record's class, without conversations and nested rollouts."""
    described = inspect.type_info(record)
    assert isinstance(described, inspect.StructType)
    columns = {field.name: _column(field.type) for field in described.fields}
    return {name: column for name, column in columns.items() if column is not None}


_PLAIN = {
    inspect.BoolType: bool,
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.StrType: str,
    inspect.EnumType: str,
}


def _column(kind: inspect.Type, is_list: bool = False) -> Column | None:
    if isinstance(kind, inspect.ListType):
        return None if is_list else _column(kind.item_type, is_list=True)
    options = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    (plain,) = [option for option in options if not isinstance(option, inspect.NoneType)]
    value_type = _PLAIN.get(type(plain.type if isinstance(plain, inspect.Metadata) else plain))
    return None if value_type is None else Column(value_type, is_list)
