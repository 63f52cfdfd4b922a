"""The layout of a record, derived from the types of its fields; lines, checks and data frames follow it.

Invariant: no field is named here. There are three kinds of fields: plain values (`Column`), conversations, and the
rollouts of a group, written as one object each or, if the field is marked `Mark.COLUMNS`, as one list per value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from rg_env.dump.schema import Mark, Message


@dataclass(frozen=True, slots=True)
class Column:
    """A field that holds one plain value.

    Attributes:
        type: bool, int, float, str or an enum of strings.
        optional: None is allowed, too.
        is_json: the string holds JSON.
        default: the field's default, `dataclasses.MISSING` if it has none.
    """

    name: str
    type: type[Any]
    optional: bool
    is_json: bool
    default: Any

    @property
    def is_text(self) -> bool:
        """Whether files contain a string, which is never null."""
        return issubclass(self.type, str)

    @property
    def empty_means_none(self) -> bool:
        """Whether the empty string in a file means None."""
        return self.is_text and self.optional

    @property
    def may_be_null(self) -> bool:
        """Whether files may contain null: for None, or for a number that is not finite."""
        return not self.is_text and (self.optional or self.type is float)

    @property
    def allowed(self) -> list[str] | None:
        """The strings that files may contain; None: any value of the type."""
        if not issubclass(self.type, StrEnum):
            return None
        return [*([""] if self.optional else []), *(member.value for member in self.type)]


@dataclass(frozen=True, slots=True)
class Rollouts:
    """The field that holds the rollouts of a group.

    Attributes:
        record: their class.
        as_columns: whether they are written as one list per field, next to the group's fields.
    """

    name: str
    record: Any
    as_columns: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of a record, by kind.

    Attributes:
        columns: by name, in the order of the fields.
        conversations: names of the fields that hold messages.
    """

    columns: dict[str, Column]
    conversations: tuple[str, ...]
    rollouts: Rollouts | None


def per_class[T](make: Callable[[Any], T]) -> Callable[[Any], T]:
    """`functools.cache` for functions of a class; mypy does not accept classes as hashable."""
    return cache(make)


@per_class
def layout_of(record: Any) -> Layout:
    """The layout of a record's dataclass, inherited fields included."""
    types, marked = get_type_hints(record), get_type_hints(record, include_extras=True)
    columns: dict[str, Column] = {}
    conversations: list[str] = []
    rollouts = None
    for field in fields(record):
        hint, marks = types[field.name], _marks(marked[field.name])
        if get_origin(hint) is not Sequence:
            options = set(get_args(hint) or [hint])
            (scalar,) = options - {NoneType}
            columns[field.name] = Column(field.name, scalar, len(options) > 1, Mark.JSON in marks, field.default)
        elif get_args(hint) == (Message,):
            conversations.append(field.name)
        else:
            rollouts = Rollouts(field.name, get_args(hint)[0], Mark.COLUMNS in marks)
    return Layout(columns, tuple(conversations), rollouts)


def _marks(hint: Any) -> list[Any]:
    parts = [mark for part in get_args(hint) for mark in _marks(part)]
    return [*getattr(hint, "__metadata__", ()), *parts]
