"""Lines as they are on the disk, and what of a damaged one is still whole.

Invariant: a record is returned only if it is whole and agrees with itself (`shape`), and every whole record of a line
is returned, whatever stands before, between or after it: NUL bytes, the head or tail of another, another record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rg_env.dump.codec import BadLineError, from_line, group_from, ledger_from_line, trained_from_line, wire_of
from rg_env.dump.files import DumpFile
from rg_env.dump.line_check import check_group, check_ledger, check_shape, check_trained
from rg_env.dump.open_file import open_lines
from rg_env.dump.schema import FileKind, GroupRecord, LedgerRecord, TrainedRecord

Record = GroupRecord | LedgerRecord | TrainedRecord

_NULS = re.compile(rb"\0+")
_START = re.compile(rb'\{\s*"(?:item_id|schema_version)"')
"""How a record begins. Inside a string the quotes would be escaped, so that this is never the middle of a record."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A record and the bytes that hold it, without a line feed."""

    record: Record
    raw: bytes


def lines_of(file: DumpFile, advance: Callable[[int], None] = lambda _: None) -> Iterator[tuple[int, bytes]]:
    """All lines with their numbers, from 1, as they are.

    Args:
        advance: called with the bytes of the file that were read since the last call.

    Raises:
        OSError: the file cannot be read, or not from here on.
    """
    with open_lines(file.path) as lines:
        for number, line in enumerate(lines, 1):
            yield number, line
            if not file.compressed:
                advance(len(line))
    if file.compressed:
        advance(file.path.stat().st_size)


def parse(line: bytes, file: DumpFile, number: int) -> Record:
    """The record in a whole line, held to everything that a line can be held to by itself.

    Atropos' lines, which carry no version, are held to what they have.

    Raises:
        BadLineError: torn, glued or no record; `FaultyRecordError` where it is JSON and cannot be.
        NewerSchemaError: written by a later version.
    """
    wire = wire_of(line)
    if file.kind is FileKind.LEDGER:
        check_shape(wire, LedgerRecord)
        ledger = ledger_from_line(line)
        check_ledger(ledger)
        return ledger
    if file.kind is FileKind.TRAINED:
        check_shape(wire, TrainedRecord)
        trained = trained_from_line(line)
        check_trained(trained)
        return trained
    if not wire.get("schema_version"):
        return group_from(file, number, line)
    check_shape(wire, GroupRecord)
    group = from_line(line)
    check_group(group)
    return group


def salvage(line: bytes, file: DumpFile, number: int) -> tuple[list[Whole], int]:
    """What is whole in a line that may be damaged.

    Returns:
        the records, in order, and how many bytes are part of none (NUL bytes and white space not counted).

    Raises:
        NewerSchemaError: a record was written by a later version.
    """
    found: list[Whole] = []
    lost = 0
    for piece in _pieces(line):
        raw = _first_object(piece) or piece
        try:
            found.append(Whole(parse(raw, file, number), raw))
            lost += len(piece) - len(raw)
        except BadLineError:
            lost += len(piece)
    return found, lost


def _pieces(line: bytes) -> Iterator[bytes]:
    """The line cut wherever a record may begin: NUL bytes never stand in one."""
    for part in _NULS.split(line):
        starts = [match.start() for match in _START.finditer(part)]
        for start, end in zip([0, *starts], [*starts, len(part)], strict=True):
            if piece := part[start:end].strip():
                yield piece


def _first_object(piece: bytes) -> bytes | None:
    """The JSON object at the beginning of the piece, if it is followed by something else."""
    try:
        text = piece.decode(errors="surrogateescape")
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return text[:end].encode(errors="surrogateescape")
