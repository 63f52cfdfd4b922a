"""Dump files line by line, each line as a record or a fault.

Every line of a file that is not blank is yielded once, in order. A damaged line affects no other line; neither does the
rest of a file that cannot be read, which is a fault at its place. Memory does not grow with the file.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Iterator
from dataclasses import dataclass

from rg_env.dump.files import DumpFile, open_lines
from rg_env.dump.schema import BadLineError, NewerSchemaError, Record, from_line
from rg_env.errors import DumpError

BLOCK = 1 << 18
"""Bytes read at a time."""

MAX_LINE = 1 << 28
"""Longest line that is read, in bytes. Real lines have less than a tenth of that."""


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
    """The lines of a file; a DumpError if it cannot be opened or needs a later version of rg_env."""
    for number, offset, raw in raw_lines(file):
        if isinstance(raw, BadLineError):
            yield Line(file, number, offset, b"", None, raw)
            continue
        record, fault = None, None
        try:
            record = from_line(file.kind.record, raw.removesuffix(b"\n"))
        except BadLineError as error:
            fault = error
        except NewerSchemaError as error:
            raise NewerSchemaError(f"{file.path.name}, line {number}: {error}") from None
        yield Line(file, number, offset, raw.removesuffix(b"\n"), record, fault, ended=raw.endswith(b"\n"))


def raw_lines(file: DumpFile) -> Iterator[tuple[int, int, bytes | BadLineError]]:
    """Number, offset and bytes of each line that is not blank. Damaged compressed data, a bad sector or a line without
    end are a fault in place of the bytes, which is the last that is yielded.
    """
    try:
        stream = open_lines(file.path)
    except OSError as error:
        raise DumpError(f"{file.path} cannot be read ({error.strerror})") from None
    number, offset = 1, 0
    with stream:
        try:
            for block in _whole_lines(stream):
                if block.isspace():
                    number, offset = number + block.count(b"\n"), offset + len(block)
                    continue
                for line in io.BytesIO(block):
                    if not line.isspace():
                        yield number, offset, line
                    number, offset = number + 1, offset + len(line)
        except OSError as error:
            yield number, offset, BadLineError(f"{error.strerror}; the rest of the file is lost")


def _whole_lines(stream: io.BufferedIOBase) -> Iterator[bytes]:
    """The stream in blocks that end where a line ends."""
    rest: list[bytes] = []
    held = 0
    while block := stream.read(BLOCK):
        end = block.rfind(b"\n") + 1
        if not end or block.isspace():
            rest.append(block)
            held += len(block)
            if held > MAX_LINE:
                raise OSError(errno.EFBIG, f"more than {MAX_LINE} bytes without a record")
            continue
        yield b"".join((*rest, block[:end]))
        rest = [block[end:]] if end < len(block) else []
        held = len(block) - end
    if rest:
        yield b"".join(rest)
