"""Opening a dump file, whatever its name and compression are by now.

Invariant: the bytes that come out are the lines as they were written; no other module asks whether a file is compressed
to read it. A running writer renames a batch when it is full (`.part` is removed) and again when it has been compressed
(`.zst` is appended): a file that was found under one name is also looked for under its later ones. Only regular files
are read, so that a FIFO or a device in a dump folder cannot block the reader.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rg_env.dump.files import PART, ZSTD

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file for reading, without waiting for anything.

    Raises:
        OSError: it cannot be opened or is not a regular file.
    """
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def open_lines(path: Path) -> io.BufferedIOBase:
    """Open a dump file for reading its lines: `with open_lines(path) as lines: for line in lines: …`.

    Args:
        path: a name it has or had; the ending `.zst` alone says that it is compressed.

    Raises:
        OSError: it cannot be opened or read. Damaged compressed data raise it while they are read, without `errno`.
    """
    file = _open(path)
    return _Decompressed(file) if Path(file.name).suffix == ZSTD else file


class _Decompressed(zstd.ZstdFile):
    """A compressed file whose damage is an `OSError`, wherever it is noticed."""

    def __init__(self, file: io.BufferedReader) -> None:
        super().__init__(file)
        self._file = file

    def close(self) -> None:
        super().close()
        self._file.close()

    def read(self, size: int | None = -1) -> bytes:
        with self._damage_is_an_error():
            return super().read(size)

    def readline(self, size: int | None = -1) -> bytes:
        with self._damage_is_an_error():
            return super().readline(size)

    @contextmanager
    def _damage_is_an_error(self) -> Iterator[None]:
        try:
            yield
        except (zstd.ZstdError, EOFError) as error:
            raise OSError(0, f"damaged zstd data: {error}", self._file.name) from None


def _open(path: Path) -> io.BufferedReader:
    try:
        return open_regular(path)
    except FileNotFoundError:
        later = _later_name(path)
        if later is None:
            raise
    return _open(later)


def _later_name(path: Path) -> Path | None:
    if path.suffix == PART:
        return path.with_suffix("")
    return None if path.suffix == ZSTD else path.with_name(path.name + ZSTD)
