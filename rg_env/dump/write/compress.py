"""Finished batches are compressed in their own thread, so that neither training nor the writer waits for it.

Invariant: at any moment a batch exists whole under one of its two names, and where it exists under both, only one
counts (`files.list_files`). The compressed file gets its name once it is whole and forced to disk, and
only then is the plain one removed. The next attempt removes what a killed process left half done.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue

from loguru import logger

from rg_env.atomic import sync_path, write_all
from rg_env.dump.files import PART, PREFIX, ZSTD, list_files, parse_name
from rg_env.dump.open_file import zstd

_CHUNK = 1 << 20
_OPTIONS: dict[int, int] = {zstd.CompressionParameter.checksum_flag: 1}


class Compression(StrEnum):
    """The setting `dump_compression`."""

    NONE = "none"
    ZSTD = "zstd"


class Compressor:
    """A thread that compresses the batches it is given, one after the other."""

    def __init__(self, batches: Iterable[Path] = ()) -> None:
        self._queue: SimpleQueue[Path | None] = SimpleQueue()
        for path in batches:
            self.add(path)
        self._thread = threading.Thread(target=self._run, name="rg-dump-zstd", daemon=True)
        self._thread.start()

    def add(self, path: Path) -> None:
        """Compress the finished batch `path` soon. A failure is logged, and leaves the batch as it is."""
        self._queue.put(path)

    def close(self) -> None:
        """Wait until all that was added is done."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (path := self._queue.get()) is not None:
            try:
                compress(path)
            except Exception as error:
                logger.warning("dump: {} stays uncompressed ({})", path.name, error)


def compress(path: Path) -> Path:
    """Replace a finished batch by its compressed form, `path` with `.zst` at its end.

    Raises:
        OSError: the disk refuses, or the name is taken; the plain batch is as it was.
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
    """Remove what a killed process left of compressing: half a file, or a second copy of a batch.

    Raises:
        OSError: the folder does not let us.
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
