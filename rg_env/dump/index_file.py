"""The index as a file beside the dump: `.rg_env_index`.

Invariant: nobody takes it for a part of the dump (a hidden name without a suffix, which `datasets`, polars and shells'
patterns pass over), nobody finds half of it (written aside, then renamed), and rows of a file are handed out only while
the file's size, time of change and inode are those that were noted. Whatever is wrong with it, it counts as absent.
"""

from __future__ import annotations

import contextlib
import glob
import io
import shutil
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson
import polars as pl

from rg_env.dump.files import PART, ZSTD
from rg_env.errors import DumpError

INDEX_NAME = ".rg_env_index"
_FORMAT = "rg_env index 1"
"""Changes with the columns and with what they mean: another version's index counts as absent."""


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


@dataclass(frozen=True)
class Stored:
    """What an index file holds: rows for each file, in the state in which it was read."""

    parts: Mapping[FileState, pl.DataFrame] = field(default_factory=dict)

    def rows_of(self, state: FileState) -> pl.DataFrame | None:
        """The rows of a file that is still in this state, else None."""
        return self.parts.get(state)

    def others(self, folder: Path, mine: Collection[FileState]) -> dict[FileState, pl.DataFrame]:
        """What is noted about files that are still in the folder and not among `mine`."""
        names = {state.name for state in mine}
        return {
            state: rows
            for state, rows in self.parts.items()
            if state.name not in names and any(folder.glob(f"{glob.escape(state.name)}*"))
        }


def load(folder: Path, schema: Mapping[str, pl.DataType]) -> Stored:
    """The index of a folder; an empty one where there is none that can be used."""
    try:
        head, body = (folder / INDEX_NAME).read_bytes().split(b"\n", 1)
        described = orjson.loads(head)
        if described["format"] != _FORMAT:
            return Stored()
        rows = pl.read_ipc(io.BytesIO(body))
        if dict(rows.schema) != dict(schema):
            return Stored()
        parts, start = {}, 0
        for file in described["files"]:
            count = file.pop("rows")
            parts[FileState(**file)] = rows.slice(start, count)
            start += count
        return Stored(parts) if start == rows.height else Stored()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, pl.exceptions.PolarsError):
        return Stored()


def save(folder: Path, parts: Mapping[FileState, pl.DataFrame]) -> bool:
    """Write the index of a folder in place of the one that is there.

    Args:
        folder: of the dump files.
        parts: the rows of each file.

    Returns:
        False where the folder does not let us: then nothing is left behind.
    """
    head = {"format": _FORMAT, "files": [asdict(state) | {"rows": rows.height} for state, rows in parts.items()]}
    body = io.BytesIO()
    pl.concat(parts.values()).write_ipc(body, compression="lz4")
    aside = None
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f"{INDEX_NAME}.", delete=False) as file:
            aside = Path(file.name)
            file.write(orjson.dumps(head) + b"\n" + body.getvalue())
        a_dump_file = next(folder.glob(f"{glob.escape(next(iter(parts)).name)}*"))
        shutil.copymode(a_dump_file, aside)  # the same people may read it
        aside.replace(folder / INDEX_NAME)
    except (OSError, StopIteration):
        if aside is not None:
            with contextlib.suppress(OSError):
                aside.unlink()
        return False
    return True
