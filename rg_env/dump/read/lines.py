"""Reads dump files line by line, each line as a record or a fault.

Invariant: every line of a file is yielded once, in order, with its number and its bytes. A damaged line is yielded as a
fault and affects no other line; so is the rest of a file that cannot be read. Only this module selects the parser by
the kind of file. Memory does not grow with the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from rg_env.dump.codec import (
    BadLineError,
    NewerSchemaError,
    Record,
    group_from,
    ledger_from_line,
    level_from_line,
    trained_from_line,
    wire_of,
)
from rg_env.dump.files import DumpFile
from rg_env.dump.line_check import check_group, check_ledger, check_level, check_shape, check_trained
from rg_env.dump.read.chunks import Part, Watch, parts_of
from rg_env.dump.schema import FileKind, GroupRecord, LedgerRecord, LevelRecord, TrainedRecord
from rg_env.dump.wire import Wire

_AT_ONCE = 1 << 18
"""Bytes read at a time: few, because lines are yielded one by one."""


class UnreadableError(BadLineError):
    """A file that cannot be read from this line on."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a dump file: `record` or `fault` is None.

    Attributes:
        number: from 1.
        offset: where it begins in the file, in bytes before compression.
        raw: its bytes, without the line feed at the end.
        fault: an `UnreadableError` if the rest of the file cannot be read; `raw` is then empty.
        ended: False for a last line without line feed.
    """

    file: DumpFile
    number: int
    offset: int
    raw: bytes
    record: Record | None
    fault: BadLineError | None = None
    ended: bool = True


def lines_in(file: DumpFile, watch: Watch | None = None, *, strict: bool = False) -> Iterator[Line]:
    """The lines of a file.

    Args:
        watch: called with the bytes read since the last call.
        strict: see `parse`; also makes blank lines, which are skipped otherwise, faults: consecutive ones one fault.

    Raises:
        DumpError: the file cannot be opened.
        NewerSchemaError: a line needs a later version of rg_env.
    """
    for part in parts_of(file, watch, size=_AT_ONCE):
        yield from lines_of(part, strict=strict)


def lines_of(part: Part, *, strict: bool = False) -> Iterator[Line]:
    """The lines of a part of a file, as `lines_in`."""
    for place in part.placed(blank=strict):
        yield _line(part, *place, strict=strict)
    if part.damage is not None:
        yield Line(part.file, part.first_line, part.offset, b"", None, UnreadableError(part.damage))


def _line(part: Part, number: int, at: int, raw: bytes, *, strict: bool) -> Line:
    record, fault = None, None
    try:
        if not raw or raw.isspace():
            raise BadLineError(_blank(raw))
        record = parse(part.file, number, raw, strict=strict)
    except BadLineError as error:
        fault = error
    except NewerSchemaError as error:
        raise NewerSchemaError(f"{part.file.path.name}, line {number}: {error}") from None
    return Line(part.file, number, part.offset + at, raw, record, fault, ended=at + len(raw) < len(part.data))


def _blank(raw: bytes) -> str:
    following = raw.count(b"\n")
    return f"{following + 1} blank lines" if following else "a blank line"


def parse(file: DumpFile, number: int, raw: bytes, *, strict: bool = False) -> Record:
    """The record in a line.

    Args:
        number: of the line in its file, from 1.
        strict: also check the keys, their types, and that the values are consistent. Not for Atropos' lines, which have
            no version.

    Raises:
        BadLineError: torn, joined to another or not a record; with `strict`, `FaultyRecordError` for a JSON object that
            no run can have written.
        NewerSchemaError: written by a later version.
    """
    wire = wire_of(raw) if strict else None
    match file.kind:
        case FileKind.LEDGER:
            return _checked(raw, wire, LedgerRecord, ledger_from_line, check_ledger)
        case FileKind.TRAINED:
            return _checked(raw, wire, TrainedRecord, trained_from_line, check_trained)
        case FileKind.LEVELS:
            return _checked(raw, wire, LevelRecord, level_from_line, check_level)
        case _:
            ours = wire if wire and wire.get("schema_version") else None
            return _checked(
                raw, ours, GroupRecord, partial(group_from, file, f"{file.path.stem}:{number}"), check_group
            )


def _checked[R: (GroupRecord, LedgerRecord, TrainedRecord, LevelRecord)](
    raw: bytes, wire: Wire | None, kind: type[R], read: Callable[[bytes], R], check: Callable[[R], None]
) -> R:
    if wire is not None:
        check_shape(wire, kind)
    record = read(raw)
    if wire is not None:
        check(record)
    return record
