"""Writing rows as JSON lines or parquet, the checks before, and the place where texts wait meanwhile."""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rg_env.analysis.export.card import CARD_NAME, is_ours
from rg_env.analysis.export.kinds import ExportError

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_ONCE = 1000
"""Rows of a parquet row group."""
SUFFIXES = (".jsonl", ".parquet")


def check_target(out: Path, force: bool) -> None:
    """Refuse a file that cannot be written, or would replace something, before the reading starts.

    Raises:
        ExportError: what is in the way, and what to do.
    """
    if out.suffix not in SUFFIXES:
        raise ExportError(f"--out {out}: the name has to end in {' or '.join(SUFFIXES)}")
    beside = out.parent / CARD_NAME
    if out.is_dir():
        raise ExportError(f"--out {out} is a folder")
    if out.exists() and not force:
        raise ExportError(f"{out} exists: --force replaces it")
    if beside.exists() and not is_ours(beside):
        raise ExportError(
            f"{beside} is in the way of the data set's card: name a folder of its own, "
            f"as {out.parent / out.stem / out.name}"
        )
    if beside.exists() and not force:
        raise ExportError(f"{beside} describes another export: name another folder, or --force replaces it")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportError(f"{out.parent} cannot be made ({error.strerror}): choose another --out") from None


@contextmanager
def aside(out: Path) -> Iterator[Path]:
    """A hidden folder beside `out` for what is not finished. What killed exports of that name left there is removed."""
    prefix = f".{out.name}."
    for left in out.parent.glob(f"{glob.escape(prefix)}*/"):
        with _lock(left) as nobody_uses_it:
            if nobody_uses_it:
                shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=prefix) as folder, _lock(Path(folder)):
        yield Path(folder)


@contextmanager
def _lock(folder: Path) -> Iterator[bool]:
    """A lock that ends with the process; False where another process has it, or the file system has none."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


@contextmanager
def writer_for(out: Path, aside: Path, schema: pa.Schema) -> Iterator[Callable[[bytes], object]]:
    """What takes rows as lines of JSON and writes them to `aside` in the format that the name `out` asks for."""
    if out.suffix == ".jsonl":
        with aside.open("wb") as file:
            yield file.write
        return
    import orjson
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows: list[object] = []
    with pq.ParquetWriter(aside, schema, compression="zstd") as file:

        def flush() -> None:
            if rows:
                file.write_table(pa.Table.from_pylist(rows, schema=schema))
                rows.clear()

        def write(line: bytes) -> None:
            rows.append(orjson.loads(line))
            if len(rows) == ROWS_AT_ONCE:
                flush()

        yield write
        flush()
