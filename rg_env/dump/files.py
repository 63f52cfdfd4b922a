"""The files of a dump folder: their names, in Atropos' pattern, and opening one, whatever its name is by now.

A name has kind, run and number, from 0 for each kind. `.part` marks the file being filled, `.zst` a compressed one. A
running writer renames a `.part` when it is full: a file that was found under one name is also looked for under its
later ones. Only regular files are read, so that a FIFO or a device in a dump folder cannot block the reader.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rg_env.dump.schema import FileKind
from rg_env.errors import DumpError

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

PREFIX = "reasoning_gym_environment"
PART = ".part"
ZSTD = ".zst"
_NAME = re.compile(
    rf"{PREFIX}_(?P<kind>{'|'.join(sorted(FileKind, key=len, reverse=True))})"
    r"_(?P<run_id>.+)_(?P<batch>\d{4,})\.jsonl(?P<ending>\.part|\.zst)?"
)


@dataclass(frozen=True, slots=True)
class DumpFile:
    """A dump file, as described by its name. A running writer may have renamed it since."""

    path: Path
    kind: FileKind
    run_id: str
    batch: int
    part: bool
    compressed: bool = False


def batch_name(kind: FileKind, run_id: str, batch: int) -> str:
    """The name of a finished batch.

    >>> batch_name(FileKind.FAILED, "20261121-053012-ab12", 7)
    'reasoning_gym_environment_FAILED_rollouts_20261121-053012-ab12_0007.jsonl'
    """
    return f"{PREFIX}_{kind}_{run_id}_{batch:04d}.jsonl"


def manifest_name(run_id: str) -> str:
    return f"{PREFIX}_manifest_{run_id}.json"


def lock_name(run_id: str) -> str:
    return f"{PREFIX}_lock_{run_id}"


def parse_name(path: Path) -> DumpFile | None:
    """The file that the name describes, or None if it is not a batch of a dump."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        return None
    ending, run_id = match["ending"], match["run_id"].encode("utf-8", "replace").decode()
    return DumpFile(path, FileKind(match["kind"]), run_id, int(match["batch"]), ending == PART, ending == ZSTD)


def list_files(folder: Path, run_id: str | None = None) -> list[DumpFile]:
    """The files in a folder, of one run or of all, by run, kind and number; several forms of one are all listed."""
    paths = set(folder.iterdir())
    for _ in range(10):  # during a rename a listing may show a file twice or not at all
        before, paths = paths, set(folder.iterdir())
        if paths == before:
            break
    files = [file for path in paths if (file := parse_name(path)) and run_id in (None, file.run_id)]
    return sorted(files, key=lambda file: (file.run_id, file.kind, file.batch))


def free_number(folder: Path, kind: FileKind, run_id: str) -> int:
    """The number after the last batch, finished or not, of this kind and run in the folder."""
    return max((file.batch + 1 for file in list_files(folder, run_id) if file.kind is kind), default=0)


def is_taken(path: Path) -> bool:
    """Whether a finished batch has this name, plain or compressed."""
    return path.exists() or path.with_name(path.name + ZSTD).exists()


def try_folder(folder: Path) -> None:
    """Raise an OSError if the folder cannot be written; creating it now could break a run that starts in it."""
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    with tempfile.TemporaryFile(dir=nearest):
        pass


def check_folder(folder: Path) -> None:
    """Create the folder if necessary and check that it is writable.

    Raises:
        DumpError: it cannot be created or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise DumpError(
            f"dump folder {folder} cannot be written ({error.strerror}): "
            "choose another dump_dir, or fix its permissions"
        ) from None


def open_regular(path: Path) -> io.BufferedReader:
    """Open a file for reading without waiting for anything; an OSError if it is not a regular file."""
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
    finished = path.with_suffix("") if path.suffix == PART else path
    names = dict.fromkeys((path, finished, finished.with_name(finished.name.removesuffix(ZSTD) + ZSTD)))
    for name in names:
        with suppress(FileNotFoundError):
            file = open_regular(name)
            return _Decompressed(file) if name.suffix == ZSTD else file
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


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
