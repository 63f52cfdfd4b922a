"""The files of a dump folder: their names in Atropos' pattern, how one is opened, its lines, and the lock of a run.

A name has kind, run and number, from 0 for each kind. `.part` marks the file being filled, `.zst` or `.gz` a compressed
one. A running writer renames a `.part` when it is full: a file that was found under one name is also looked for under
its later ones. Only regular files are read, so that a FIFO or a device in a dump folder cannot block the reader.

Every line of a file that is not blank is yielded once, in order. A corrupt line affects no other line; neither does the
rest of a file that cannot be read, which is a fault at its place. Memory does not grow with the file.

At most one writer per run and folder, across processes and hosts. The kernel releases the lock when its process ends,
and forked children do not hold it. Not covered: network file systems whose locks are local to a host, and a lock file
that somebody removes. Even then two writers never share a file, because files are created exclusively.
"""

from __future__ import annotations

import errno
import gzip
import io
import os
import re
import socket
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from msgspec import Struct

from rg_env.base.errors import DumpError
from rg_env.dump.ledger_parts import PartReader, Parts
from rg_env.dump.schema import BadLineError, FileKind, NewerSchemaError, Record, from_line

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

if TYPE_CHECKING:
    from filelock import BaseFileLock

READ_ERRORS = (OSError, EOFError, zstd.ZstdError, zlib.error)
"""What reading an open file may raise: the last three come from corrupt compressed data."""
PREFIX = "reasoning_gym_environment"
PART = ".part"
COMPRESSED: dict[str, Callable[[Path], io.BufferedIOBase]] = {".zst": zstd.ZstdFile, ".gz": gzip.GzipFile}
"""Ending of a compressed file → what opens it."""
_ENDINGS = "|".join(map(re.escape, (PART, *COMPRESSED)))
_NAME = re.compile(
    rf"{PREFIX}_(?P<kind>{'|'.join(sorted(FileKind, key=len, reverse=True))})"
    rf"_(?P<run_id>.+)_(?P<batch>\d{{4,}})\.jsonl(?:{_ENDINGS})?"
)


_BLOCK = 1 << 18
"""Bytes read at a time."""
_LOCK_SECONDS = 0.2
"""For which a lock that is held is tried."""
MAX_LINE = 1 << 28
"""Longest line that is read, in bytes. Real lines have less than a tenth of that."""


@dataclass(frozen=True, slots=True)
class DumpFile:
    """A dump file, as described by its name. A running writer may have renamed it since."""

    path: Path
    kind: FileKind
    run_id: str
    batch: int

    @property
    def is_open(self) -> bool:
        """Whether it is being filled, or was when its run was killed."""
        return self.path.suffix == PART


def batch_name(kind: FileKind, run_id: str, batch: int) -> str:
    """Return the name of a finished batch.

    >>> batch_name(FileKind.FAILED, "20261121-053012-ab12", 7)
    'reasoning_gym_environment_FAILED_rollouts_20261121-053012-ab12_0007.jsonl'
    """
    return f"{PREFIX}_{kind}_{run_id}_{batch:04d}.jsonl"


def manifest_name(run_id: str) -> str:
    return f"{PREFIX}_manifest_{run_id}.json"


def runs_with_manifest(folder: Path) -> list[str]:
    """Return the ids of the runs in a folder that have a manifest, sorted."""
    before, _, after = manifest_name("*").partition("*")
    return sorted(path.name.removeprefix(before).removesuffix(after) for path in folder.glob(manifest_name("*")))


def lock_name(run_id: str) -> str:
    return f"{PREFIX}_lock_{run_id}"


def parse_name(path: Path) -> DumpFile | None:
    """Return the file that the name describes, or None if it is not a batch of a dump."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        return None
    # Of a name that is not UTF-8, Python keeps the bytes as lone surrogates, which no output takes.
    run_id = match["run_id"].encode("utf-8", "replace").decode()
    return DumpFile(path, FileKind(match["kind"]), run_id, int(match["batch"]))


def list_files(folder: Path, run_id: str | None = None) -> list[DumpFile]:
    """Return the files in a folder, of one run or of all, by run, kind and number; each version of one is listed."""
    paths = set(folder.iterdir())
    for _ in range(10):  # during a rename a listing may show a file twice or not at all
        before, paths = paths, set(folder.iterdir())
        if paths == before:
            break
    files = []
    for path in paths:
        file = parse_name(path)
        if file and run_id in (None, file.run_id):
            files.append(file)
    return sorted(files, key=lambda file: (file.run_id, file.kind, file.batch))


def free_number(folder: Path, kind: FileKind, run_id: str) -> int:
    """Return the number after the last batch, finished or not, of this kind and run in the folder."""
    return max((file.batch + 1 for file in list_files(folder, run_id) if file.kind is kind), default=0)


def is_taken(path: Path) -> bool:
    """Return whether a finished batch has this name, plain or compressed."""
    return any(path.with_name(path.name + ending).exists() for ending in ("", *COMPRESSED))


def try_folder(folder: Path) -> None:
    """Raise an OSError if the folder cannot be written; creating it now could break a run that starts in it."""
    nearest = next(path for path in (folder, *folder.parents) if os.path.exists(path))
    with tempfile.TemporaryFile(dir=nearest):
        pass


def check_folder(folder: Path) -> None:
    """Create the folder if necessary and check that it is writable.

    Raises:
        DumpError: it cannot be created or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try_folder(folder)
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


def open_lines(path: Path, *, at_places: bool = False) -> io.BufferedIOBase:
    """Open a dump file for reading its lines: `with open_lines(path) as lines: for line in lines: …`.

    Args:
        path: a name it has or had; the ending alone says that it is compressed.
        at_places: lines are read at places in it, which is quick in a file that `rg_env.dump.sealed` has made.

    Raises:
        OSError: it cannot be opened. While lines are read, any of `READ_ERRORS`.
    """
    finished = path.with_suffix("") if path.suffix == PART else path
    names = [path, finished]
    if finished.suffix not in COMPRESSED:
        names += [finished.with_name(finished.name + ending) for ending in COMPRESSED]
    # In the order in which a file gets its names: open, finished, compressed. Each is tried once.
    for name in dict.fromkeys(names):
        with suppress(FileNotFoundError):
            file = open_regular(name)
            if name.suffix not in COMPRESSED:
                return file
            # Opened again by its name: what decompresses closes only files that it has opened itself.
            with file:  # is a file
                if at_places and is_seekable(file):
                    return open_seekable(name)
                return COMPRESSED[name.suffix](name)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


_SEEK_TABLE = b"\xb1\xea\x92\x8f"
"""How a file in the seekable format of zstd ends, see
https://github.com/facebook/zstd/blob/dev/contrib/seekable_format/zstd_seekable_compression_format.md."""


def is_seekable(file: io.BufferedReader) -> bool:
    """Return whether a file seems to be in the seekable format of zstd."""
    if file.seek(0, os.SEEK_END) < len(_SEEK_TABLE):
        return False
    file.seek(-len(_SEEK_TABLE), os.SEEK_END)
    return file.read() == _SEEK_TABLE


def open_seekable(path: Path) -> io.BufferedIOBase:
    """Open a file in the seekable format of zstd; as plain zstd if its table is corrupt."""
    from pyzstd import SeekableFormatError, SeekableZstdFile  # only needed to read texts at their places

    try:
        return cast("io.BufferedIOBase", SeekableZstdFile(path))
    except SeekableFormatError:
        return zstd.ZstdFile(path)


def why_unreadable(error: Exception) -> str:
    """Return the reason in one of `READ_ERRORS`."""
    if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
        return str(error.strerror)
    return f"corrupt compressed data: {error}"


# -- lines


class Line(Struct, frozen=True):
    """One line of a dump file: `record` or `fault` is None.

    Attributes:
        number: from 1.
        offset: where it begins in the file, in bytes before compression.
        raw: its bytes, with the line feed if there is one.
        parts: the lists of a line of the ledger, whose record is then a `LedgerFacts`; None if the record has all.
        fault: why it is not a record, or why the rest of the file cannot be read; `raw` is then empty.
    """

    file: DumpFile
    number: int
    offset: int
    raw: bytes
    record: Record | None
    fault: BadLineError | None
    parts: Parts | None = None


def lines_in(file: DumpFile, kind: type[Record] | None = None, reader: PartReader | None = None) -> Iterator[Line]:
    """Yield the lines of a file as records of a class, by default that of the file's kind; a DumpError if it cannot be
    opened or needs a later version of rg_env.

    Args:
        reader: of lines of a ledger: those that it can read are yielded with `parts`.
    """
    kind = kind or file.kind.record
    for number, offset, raw in raw_lines(file):
        if isinstance(raw, BadLineError):
            yield Line(file, number, offset, b"", None, raw)
            continue
        in_parts = reader.read(raw) if reader else None
        if in_parts:
            facts, parts = in_parts
            yield Line(file, number, offset, raw, facts, None, parts)
            continue
        record, fault = None, None
        try:
            record = from_line(kind, raw)
        except BadLineError as error:
            fault = error
        except NewerSchemaError as error:
            raise NewerSchemaError(f"{file.path.name}, line {number}: {error}") from None
        yield Line(file, number, offset, raw, record, fault)


def raw_lines(file: DumpFile) -> Iterator[tuple[int, int, bytes | BadLineError]]:
    """Number, offset and bytes of each line that is not blank. Corrupt compressed data, a bad sector or a line without
    end are a fault in place of the bytes, which is the last that is yielded.
    """
    try:
        stream = open_lines(file.path)
    except OSError as error:
        raise DumpError(f"{file.path} cannot be read ({error.strerror})") from None
    number, offset = 1, 0
    with stream:
        try:
            for block in _whole_lines(stream):
                # Blank lines are not records, but count in the numbers and offsets of later lines.
                if block.isspace():
                    number, offset = number + block.count(b"\n"), offset + len(block)
                    continue
                for line in io.BytesIO(block):
                    if not line.isspace():
                        yield number, offset, line
                    number, offset = number + 1, offset + len(line)
        except READ_ERRORS as error:
            yield number, offset, BadLineError(f"{why_unreadable(error)}; the rest of the file is lost")


def _whole_lines(stream: io.BufferedIOBase) -> Iterator[bytes]:
    """Yield the stream in blocks that end where a line ends."""
    rest: list[bytes] = []
    held = 0
    while block := stream.read(_BLOCK):
        end = block.rfind(b"\n") + 1
        # Blank lines are held, too, so that the limit also ends the reading of a file that has nothing else.
        if not end or block.isspace():
            rest.append(block)
            held += len(block)
            if held > MAX_LINE:
                raise OSError(errno.EFBIG, f"more than {MAX_LINE} bytes without a record")
            continue
        yield b"".join((*rest, block[:end]))
        rest = [block[end:]] if end < len(block) else []
        held = len(block) - end
    if rest:
        yield b"".join(rest)


# -- the lock


class HeldError(DumpError):
    """Another process writes here now."""


class RunLock:
    """The lock of one run, from construction to `release`, which any thread may call.

    Args:
        what: is being written to the folder, for the message.
        instead: the settings that name another folder.

    Raises:
        HeldError: naming the holder. DumpError: the folder cannot be locked.
    """

    def __init__(
        self, folder: Path, run_id: str, what: str = "", instead: str = "trainer.ckpt_path or dump_dir"
    ) -> None:
        from filelock import FileLock  # slow to import, and not needed for reading

        self._what = what or f"run {run_id}"
        self._folder, self._instead = folder, instead
        self._path = folder / lock_name(run_id)
        # Any thread may release it, which filelock's default, a state for each thread, rules out. Others who read the
        # folder must be able to open the file: they ask it whether the run is being written.
        self._lock = cast("BaseFileLock", FileLock(self._path, thread_local=False, mode=0o666))
        self._take()

    def keep(self) -> None:
        """Take the lock again if its file is gone, as when somebody has renamed the folder. Raises DumpError."""
        if not (self._lock.is_locked and self._path.exists()):
            self._lock.release()
            self._take()

    def _take(self) -> None:
        from filelock import SoftFileLock, Timeout

        try:
            # Somebody may be asking whether the run is written, which holds the lock for a moment.
            self._lock.acquire(timeout=_LOCK_SECONDS, poll_interval=0.01)
        except Timeout:
            holder = ""
            with suppress(OSError), open_regular(self._path) as file:
                holder = file.read(256).decode(errors="replace").strip()
            raise HeldError(
                f"{self._what} is being written to {self._folder} by {holder or 'another process'}: wait until it "
                f"ends, or use another {self._instead} (if none runs, remove {self._path})"
            ) from None
        except OSError as error:
            raise DumpError(f"{self._path} cannot be locked ({error.strerror}): use another dump_dir") from None
        if not isinstance(self._lock, SoftFileLock):  # whose file has a content of its own
            with suppress(OSError):  # a full disk: the file does not name its holder
                fd = os.open(self._path, os.O_WRONLY | os.O_TRUNC)
                try:
                    os.write(fd, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
                finally:
                    os.close(fd)

    def release(self) -> None:
        """Release the lock. The file is removed first, so that nobody locks an unlinked file."""
        with suppress(OSError):  # a folder that has become read-only: the remaining file is harmless
            self._path.unlink(missing_ok=True)
        self._lock.release()


def is_held(folder: Path, run_id: str) -> bool | None:
    """Return whether a process writes this run now; None where the lock cannot be asked, as on a read-only mount. Locks
    for a few microseconds.
    """
    from filelock import FileLock, Timeout

    path = folder / lock_name(run_id)
    try:
        # Asking a lock creates its file, and without a file nobody holds it.
        if path.exists():
            FileLock(path).acquire(blocking=False).lock.release()
    except Timeout:
        return True
    except OSError:
        return None
    return False
