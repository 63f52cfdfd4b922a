"""Opening a dump file, whatever name it has by now.

Invariant: a running writer renames a batch when it is full (`.part` is taken off); a file that was found under one name
is looked for under its later one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rg_env.dump.files import PART


@contextmanager
def open_lines(path: Path) -> Iterator[IO[bytes]]:
    """Open a dump file for reading its lines: `with open_lines(path) as lines: for line in lines: …`.

    Args:
        path: a name it has or had.

    Raises:
        OSError: it cannot be opened or read.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        if path.suffix != PART:
            raise
        file = path.with_suffix("").open("rb")
    with file:
        yield file
