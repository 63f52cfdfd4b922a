"""Extracts the whole records from a damaged line.

Invariant: only whole, consistent records are returned, and every whole record of a line is returned, regardless of what
surrounds it: NUL bytes, parts of records, or other records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

from rg_env.dump.codec import BadLineError
from rg_env.dump.read.lines import Line, parse

_NULS = re.compile(rb"\0+")
_START = re.compile(rb'\{\s*"(?:item_id|schema_version)"')
"""The start of a record. Inside a string the quotes would be escaped, so it never matches the middle of a record."""


def salvage(line: Line) -> tuple[list[Line], int]:
    """The whole records of a damaged line.

    Returns:
        the records, in order, each as a line, and the number of bytes outside of them, without NUL bytes and white
        space.

    Raises:
        NewerSchemaError: a record was written by a later version.
    """
    found: list[Line] = []
    lost = 0
    for piece in _pieces(line.raw):
        raw = _first_object(piece) or piece
        try:
            record = parse(line.file, line.number, raw, strict=True)
        except BadLineError:
            lost += len(piece)
        else:
            found.append(replace(line, raw=raw, record=record, fault=None, ended=True))
            lost += len(piece) - len(raw)
    return found, lost


def _pieces(line: bytes) -> Iterator[bytes]:
    """The line split wherever a record may begin, without NUL bytes, which no record contains."""
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
