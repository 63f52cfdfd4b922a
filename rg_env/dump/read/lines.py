"""Reads dump files line by line, each line as a record or a fault.

Invariant: every line of a file that is not blank is yielded once, in order, with its number and its bytes. A damaged
line is yielded as a fault and affects no other line; so is the rest of a file that cannot be read. Only this module
selects the parser by the kind of file. Memory does not grow with the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rg_env.dump.codec import BadLineError, NewerSchemaError, from_line
from rg_env.dump.files import DumpFile
from rg_env.dump.read.chunks import Part, parts_of
from rg_env.dump.schema import Record

_AT_ONCE = 1 << 18
"""Bytes read at a time: few, because lines are yielded one by one."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a dump file: `record` or `fault` is None.

    Attributes:
        number: from 1.
        offset: where it begins in the file, in bytes before compression.
        raw: its bytes, without the line feed at the end.
        fault: why it is not a record, or why the rest of the file cannot be read; `raw` is then empty.
        ended: False for a last line without line feed.
    """

    file: DumpFile
    number: int
    offset: int
    raw: bytes
    record: Record | None
    fault: BadLineError | None = None
    ended: bool = True


def lines_in(file: DumpFile) -> Iterator[Line]:
    """The lines of a file.

    Raises:
        DumpError: the file cannot be opened.
        NewerSchemaError: a line needs a later version of rg_env.
    """
    for part in parts_of(file, _AT_ONCE):
        yield from lines_of(part)


def lines_of(part: Part) -> Iterator[Line]:
    """The lines of a part of a file, as `lines_in`."""
    for place in part.placed():
        yield _line(part, *place)
    if part.damage is not None:
        yield Line(part.file, part.first_line, part.offset, b"", None, BadLineError(part.damage))


def _line(part: Part, number: int, at: int, raw: bytes) -> Line:
    record, fault = None, None
    try:
        record = from_line(part.file.kind.record, raw)
    except BadLineError as error:
        fault = error
    except NewerSchemaError as error:
        raise NewerSchemaError(f"{part.file.path.name}, line {number}: {error}") from None
    return Line(part.file, number, part.offset + at, raw, record, fault, ended=at + len(raw) < len(part.data))
