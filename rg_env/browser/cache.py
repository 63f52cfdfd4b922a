"""The rows of the index, cached in the user's cache folder so that a big dump opens quickly the next time.

Invariant: cached rows are used only while their file has the size, modification time and inode that it had before it
was read. A cache that is missing, damaged or of another version is ignored, and so is a failure to write one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import platformdirs
import polars as pl

from rg_env.atomic import replacing
from rg_env.dump.files import PART, ZSTD
from rg_env.errors import DumpError

_VERSION = 3
"""Increase it when the meaning of a column changes."""
_CACHES_KEPT = 20
_STATE: dict[str, pl.DataType] = {
    "path": pl.String(),
    "size": pl.Int64(),
    "mtime_ns": pl.Int64(),
    "inode": pl.UInt64(),
}


def states_of(paths: Sequence[Path]) -> pl.DataFrame:
    """The state of dump files now: `file`, its position in `paths`, then `path`, `size` in bytes, `mtime_ns`, `inode`.

    The path is absolute, and that of the finished batch, which a file that is still being filled gets later.

    Raises:
        DumpError: a file is gone, under its later names too.
    """
    rows = [(number, *_state(path)) for number, path in enumerate(paths)]
    return pl.DataFrame(rows, schema={"file": pl.Int32(), **_STATE}, orient="row")


def _state(path: Path) -> tuple[str, int, int, int]:
    final = path.name.removesuffix(PART).removesuffix(ZSTD)
    try:
        for name in (path.name, final, f"{final}{ZSTD}"):
            with suppress(FileNotFoundError):
                stat = path.with_name(name).stat()
                readable = os.fsencode(path.with_name(final).resolve()).decode(errors="backslashreplace")
                return readable, stat.st_size, stat.st_mtime_ns, stat.st_ino
    except OSError as error:
        raise DumpError(f"{path} cannot be read ({error.strerror})") from None
    raise DumpError(f"{path} is gone")


class Cache:
    """The cached rows of the folders in which some dump files are.

    Args:
        states: of the dump files, from `states_of`.
        schema: of the rows; `file` and `line` are among its columns.
    """

    def __init__(self, states: pl.DataFrame, schema: dict[str, pl.DataType]) -> None:
        folders = sorted({str(Path(path).parent) for path in states["path"]})
        key = blake2b("\0".join(folders).encode(), digest_size=16).hexdigest()
        self.path = platformdirs.user_cache_path("rg_env", appauthor=False) / f"index-{_VERSION}-{key}.arrow"
        self._states, self._schema = states, schema
        self._stored = self._load()

    def _load(self) -> pl.DataFrame:
        schema = {**_STATE, **self._schema}
        with suppress(OSError, pl.exceptions.PolarsError):
            stored = pl.read_ipc(self.path.read_bytes())
            if stored.schema == schema:
                return stored
        return pl.DataFrame(schema=schema)

    def rows(self) -> pl.DataFrame:
        """The rows of the files that have not changed, with the files' current numbers."""
        return self._stored.drop("file").join(self._states, on=list(_STATE)).select(*self._schema).sort("file", "line")

    def save(self, rows: pl.DataFrame) -> None:
        """Store the rows of all files; those of other files in the same folders are kept as long as the files exist."""
        others = self._stored.join(self._states, on="path", how="anti", maintain_order="left")
        ends = ("", ZSTD, PART)
        alive = [path for path in others["path"].unique() if any(Path(path + end).exists() for end in ends)]
        mine = (
            rows.sort("file", "line")
            .join(self._states, on="file", maintain_order="left")
            .select(*_STATE, *self._schema)
        )
        with suppress(OSError, pl.exceptions.PolarsError):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(self.path) as draft:
                pl.concat([mine, others.filter(pl.col("path").is_in(alive))]).write_ipc(draft, compression="zstd")
            by_age = sorted(self.path.parent.glob("index-*.arrow"), key=lambda path: path.stat().st_mtime)
            for old in by_age[:-_CACHES_KEPT]:
                old.unlink()
