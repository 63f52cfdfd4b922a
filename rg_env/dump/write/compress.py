"""Compresses finished batches.

Invariant: a batch always exists complete under one of its two names; if both exist, the plain one counts
(`files.list_files`). The plain file is removed once the compressed one is complete and on disk. The next attempt
removes incomplete files that a killed process left.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path

from rg_env.atomic import sync_path, write_all
from rg_env.dump.files import PART, PREFIX, ZSTD, list_files, parse_name
from rg_env.dump.open_file import zstd

_CHUNK = 1 << 20
_OPTIONS: dict[int, int] = {zstd.CompressionParameter.checksum_flag: 1}


class Compression(StrEnum):
    """The setting `dump_compression`."""

    NONE = "none"
    ZSTD = "zstd"


def compress(path: Path) -> Path:
    """Replace a finished batch by its compressed form, `path` with `.zst` at its end.

    Raises:
        OSError: a disk error, or the name is taken; the plain batch is unchanged.
    """
    final = path.with_name(path.name + ZSTD)
    if final.exists():
        raise FileExistsError(f"{final.name} exists already")
    temporary = final.with_name(final.name + PART)
    try:
        _write_compressed(path, temporary)
        temporary.rename(final)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_path(path.parent)
    path.unlink()
    return final


def _write_compressed(source: Path, target: Path) -> None:
    compressor = zstd.ZstdCompressor(options=_OPTIONS)
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        with source.open("rb") as plain:
            while chunk := plain.read(_CHUNK):
                write_all(fd, compressor.compress(chunk))
        write_all(fd, compressor.flush())
        os.fsync(fd)
    finally:
        os.close(fd)


def tidy_up(folder: Path, run_id: str) -> None:
    """Remove what a process that was killed while compressing left: partial files and second copies of a batch.

    Raises:
        OSError: a file cannot be removed.
    """
    for path in list(folder.glob(f"{PREFIX}_*{ZSTD}*")):
        batch = parse_name(path.with_name(path.name.removesuffix(PART)))
        if batch is None or batch.run_id != run_id or not batch.compressed:
            continue
        if path.name.endswith(PART) or path.with_suffix("").exists():
            path.unlink()


def plain_batches(folder: Path, run_id: str) -> list[Path]:
    """The finished batches of a run that are not compressed, in the order of their numbers."""
    files = [file for file in list_files(folder, run_id) if not file.part and not file.compressed]
    return [file.path for file in sorted(files, key=lambda file: file.batch)]
