"""Dump files in chunks of whole lines, so that a file of any size is read in constant memory.

Invariant: every byte of every file is in exactly one part, a part ends where a line ends (or the file), and a part
knows the number of its first line. Small files are bundled, because calling a JSON reader costs as much as reading one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import BufferedIOBase
from typing import IO

from rg_env.dump.files import DumpFile
from rg_env.dump.open_file import open_lines
from rg_env.errors import DumpError

CHUNK = 1 << 24
"""Bytes read at a time: large enough for throughput, small enough to hold several in memory."""

_TAIL = 1 << 20

Watch = Callable[[int], object]
"""Called with the number of bytes read since the last call, in terms of the files' sizes on disk."""


@dataclass(frozen=True, slots=True)
class Part:
    """Whole lines of one file.

    Attributes:
        first_line: number of the first one, from 1.
        damage: why the file cannot be read beyond this part; usually None.
    """

    file: DumpFile
    first_line: int
    data: bytes
    damage: str | None = None

    @property
    def lines(self) -> int:
        """Number of lines, including empty ones and a last one without line feed."""
        return self.data.count(b"\n") + (bool(self.data) and not self.data.endswith(b"\n"))

    def placed(self, *, blank: bool = False) -> Iterator[tuple[int, int, bytes]]:
        """Number in the file, offset in `data` and bytes of each line; blank lines only with `blank`."""
        at = 0
        lines = self.data.split(b"\n")
        if not lines[-1]:  # what follows the last line feed is not a line
            lines.pop()
        for number, line in enumerate(lines, self.first_line):
            if blank or (line and not line.isspace()):
                yield number, at, line
            at += len(line) + 1


def bundles(files: Iterable[DumpFile], watch: Watch | None = None, size: int = CHUNK) -> Iterator[list[Part]]:
    """The files' parts, in order, in lists of about `size` bytes; the parts of a list share run and kind.

    Raises:
        DumpError: a file cannot be opened.
    """
    held: list[Part] = []
    weight = 0
    for file in files:
        for part in parts_of(file, watch, size):
            other = held and (held[0].file.run_id, held[0].file.kind) != (file.run_id, file.kind)
            if held and (other or weight + len(part.data) > size):
                yield held
                held, weight = [], 0
            held.append(part)
            weight += len(part.data)
    if held:
        yield held


def parts_of(file: DumpFile, watch: Watch | None = None, size: int = CHUNK) -> Iterator[Part]:
    """The parts of one file; a line longer than `size` makes a longer part.

    Raises:
        DumpError: the file cannot be opened. A later failure, such as damaged compressed data or bad sectors, is
            reported as the `damage` of an empty part instead.
    """
    number, on_disk, reported, opened = 1, size_of(file), 0, False
    try:
        with open_lines(file.path) as stream:
            opened = True
            for data in _whole_lines(stream, size):
                part = Part(file, number, data)
                number += part.lines
                yield part
                if watch is not None:
                    now = min(on_disk, reported + len(data))  # decompressed data is longer than the file
                    watch(now - reported)
                    reported = now
    except OSError as error:
        if not opened:
            raise DumpError(f"{file.path} cannot be read ({error.strerror})") from None
        yield Part(file, number, b"", damage=f"{error.strerror}; the rest of the file is lost")


def size_of(file: DumpFile) -> int:
    """Size on disk in bytes; 0 for a file that has been removed or renamed."""
    try:
        return file.path.stat().st_size
    except OSError:
        return 0


def last_line(file: DumpFile) -> bytes:
    """The last line that is not empty; only its end if it is longer than a megabyte.

    Raises:
        OSError: the file cannot be read.
    """
    last = b""
    with open_lines(file.path) as stream:
        if not file.compressed:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL))
        for line in stream:
            last = last if line.isspace() else line
    return last


def _whole_lines(stream: IO[bytes] | BufferedIOBase, size: int) -> Iterator[bytes]:
    rest: list[bytes] = []
    while block := stream.read(size):
        end = block.rfind(b"\n") + 1
        if not end:
            rest.append(block)
            continue
        yield b"".join((*rest, block[:end]))
        rest = [block[end:]] if end < len(block) else []
    if rest:
        yield b"".join(rest)
