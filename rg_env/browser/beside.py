"""What is left beside a dump so that the next reading is quick: hidden files, a line of JSON and then a polars frame.

Invariant: nobody takes one for a part of the dump (a hidden name without a suffix, which `datasets`, polars and shells'
patterns pass over), and nobody finds half of one (written aside, then renamed). Whatever is wrong with one, it counts
as absent: it is never needed.
"""

from __future__ import annotations

import contextlib
import glob
import io
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from rg_env.dump.files import PART, ZSTD
from rg_env.errors import DumpError

WORTH_KEEPING = 32_000_000
"""Bytes of dump files from which on something is left beside them; less is read again as quickly."""


@dataclass(frozen=True, slots=True)
class FileState:
    """What tells a file from what it was. The name is the finished batch's, which a file being filled will get."""

    name: str
    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> FileState:
        """The state of a file now.

        Raises:
            DumpError: it is gone, under its later names, too.
        """
        final = path.name.removesuffix(PART).removesuffix(ZSTD)
        for name in (path.name, final, f"{final}{ZSTD}"):
            with contextlib.suppress(FileNotFoundError):
                stat = path.with_name(name).stat()
                return cls(final, stat.st_size, stat.st_mtime_ns, stat.st_ino)
        raise DumpError(f"{path} is gone")


def load_beside(folder: Path, name: str) -> tuple[Any, pl.DataFrame] | None:
    """The head and the frame of a file that `save_beside` left; None where there is none that can be read."""
    try:
        head, body = (folder / name).read_bytes().split(b"\n", 1)
        return orjson.loads(head), pl.read_ipc(io.BytesIO(body))
    except (OSError, ValueError, pl.exceptions.PolarsError):
        return None


def save_beside(folder: Path, name: str, head: Mapping[str, Any], rows: pl.DataFrame, of: FileState) -> bool:
    """Leave a head and a frame in a folder, in the place of those that are there.

    Args:
        folder: of the dump files.
        name: hidden, and without a suffix.
        of: one of the dump's files; who may read it may read this.

    Returns:
        False where the folder does not let us: then nothing is left behind.
    """
    body = io.BytesIO()
    rows.write_ipc(body, compression="zstd")
    aside = None
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f"{name}.", delete=False) as file:
            aside = Path(file.name)
            file.write(orjson.dumps(head) + b"\n" + body.getvalue())
        shutil.copymode(next(folder.glob(f"{glob.escape(of.name)}*")), aside)
        aside.replace(folder / name)
    except (OSError, StopIteration):
        if aside is not None:
            with contextlib.suppress(OSError):
                aside.unlink()
        return False
    return True
