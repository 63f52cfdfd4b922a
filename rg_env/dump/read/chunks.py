"""Dump files in chunks of whole lines, so that a file of any size is read in constant memory.

Invariant: every byte of every file is in exactly one part, a part ends where a line ends (or the file), and a part
knows the number of its first line. Small files are bundled, because calling a JSON reader costs as much as reading one.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

from rg_env.dump.files import DumpFile
from rg_env.dump.open_file import open_lines
from rg_env.errors import DumpError

CHUNK = 1 << 24
"""Bytes read at a time: large enough for throughput, small enough to hold several in memory."""

MAX_LINE = 1 << 28
"""Longest line that is read, in bytes. Real lines have less than a tenth of that."""


@dataclass(frozen=True, slots=True)
class Part:
    """Whole lines of one file.

    Attributes:
        first_line: number of the first one, from 1.
        offset: where the first one begins in the file, in bytes before compression.
        damage: why the file cannot be read beyond this part; usually None.
    """

    file: DumpFile
    first_line: int
    offset: int
    data: bytes
    damage: str | None = None

    @property
    def lines(self) -> int:
        """Number of lines, including empty ones and a last one without line feed."""
        return self.data.count(b"\n") + (bool(self.data) and not self.data.endswith(b"\n"))

    def placed(self) -> Iterator[tuple[int, int, bytes]]:
        """Number in the file, offset in `data` and bytes of each line that is not blank."""
        at = 0
        for number, line in enumerate(io.BytesIO(self.data), self.first_line):
            if not line.isspace():
                yield number, at, line.removesuffix(b"\n")
            at += len(line)


def bundles(files: Iterable[DumpFile], size: int = CHUNK) -> Iterator[list[Part]]:
    """The files' parts, in order, in lists of about `size` bytes; the parts of a list share run and kind.

    Raises:
        DumpError: a file cannot be opened.
    """
    held: list[Part] = []
    weight = 0
    for file in files:
        for part in parts_of(file, size):
            other = held and (held[0].file.run_id, held[0].file.kind) != (file.run_id, file.kind)
            if held and (other or weight + len(part.data) > size):
                yield held
                held, weight = [], 0
            held.append(part)
            weight += len(part.data)
    if held:
        yield held


def parts_of(file: DumpFile, size: int = CHUNK) -> Iterator[Part]:
    """The parts of one file; a line longer than `size` makes a longer part.

    Raises:
        DumpError: the file cannot be opened. A later failure, such as damaged compressed data or bad sectors, is
            reported as the `damage` of an empty part instead.
    """
    part = Part(file, 1, 0, b"")
    opened = False
    try:
        with open_lines(file.path) as stream:
            opened = True
            for data in _whole_lines(stream, size):
                part = Part(file, part.first_line + part.lines, part.offset + len(part.data), data)
                yield part
    except OSError as error:
        if not opened:
            raise DumpError(f"{file.path} cannot be read ({error.strerror})") from None
        why = f"{error.strerror}; the rest of the file is lost"
        yield Part(file, part.first_line + part.lines, part.offset + len(part.data), b"", damage=why)


def size_of(file: DumpFile) -> int:
    """Size on disk in bytes; 0 for a file that has been removed or renamed."""
    try:
        return file.path.stat().st_size
    except OSError:
        return 0


def _whole_lines(stream: IO[bytes] | io.BufferedIOBase, size: int) -> Iterator[bytes]:
    rest: list[bytes] = []
    held = 0
    while block := stream.read(size):
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
