"""Writes rows as JSON lines or Parquet. Also checks the target first, and manages the folder of unfinished files."""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import jsonlines
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from rg_env.analysis.export.card import CARD_NAME, is_ours
from rg_env.analysis.export.kinds import ExportError

ROWS_AT_ONCE = 1000
"""Rows of a Parquet row group."""
SUFFIXES = (".jsonl", ".parquet")


def check_target(out: Path, force: bool) -> None:
    """Check that a file can be written and replaces nothing by accident.

    Raises:
        ExportError: the file cannot be written, or would replace another one; the message says what to do.
    """
    if out.suffix not in SUFFIXES:
        raise ExportError(f"--out {out}: the name must end in {' or '.join(SUFFIXES)}")
    card = out.parent / CARD_NAME
    if out.is_dir():
        raise ExportError(f"--out {out} is a folder")
    if out.exists() and not force:
        raise ExportError(f"{out} exists; replace it with --force")
    if card.exists() and not is_ours(card):
        raise ExportError(
            f"{card} would be replaced by the data set's card: choose an empty folder, "
            f"such as {out.parent / out.stem / out.name}"
        )
    if card.exists() and not force:
        raise ExportError(f"{card} describes another export: choose another folder, or replace it with --force")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportError(f"{out.parent} cannot be created ({error.strerror}): choose another --out") from None


@contextmanager
def draft_folder(out: Path) -> Iterator[Path]:
    """A hidden folder next to `out` for unfinished files. Folders left by killed exports to `out` are removed."""
    prefix = f".{out.name}."
    for left in out.parent.glob(f"{glob.escape(prefix)}*/"):
        with _lock(left) as unused:
            if unused:
                shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=prefix) as folder, _lock(Path(folder)):
        yield Path(folder)


@contextmanager
def _lock(folder: Path) -> Iterator[bool]:
    """Lock a folder until the process ends; yields False if another process holds the lock or locks are unsupported."""
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


def write_lines(lines: Iterator[bytes], path: Path, suffix: str, schema: pa.Schema) -> None:
    """Write rows, given as lines of JSON, to a file in the format of the suffix."""
    if suffix == ".jsonl":
        with path.open("wb") as file:
            file.writelines(lines)
        return
    rows = iter(jsonlines.Reader(lines, loads=orjson.loads))
    with pq.ParquetWriter(path, schema, compression="zstd") as table:
        while batch := list(islice(rows, ROWS_AT_ONCE)):
            table.write_table(pa.Table.from_pylist(batch, schema=schema))
