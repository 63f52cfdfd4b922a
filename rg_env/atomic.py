"""Replaces a file or folder atomically: the new one is written under a hidden name and then renamed.

Invariant: a reader finds the old one or the whole new one, never a part; a failed write leaves nothing behind. Not
covered: a power failure, unless `sync` is set, and a killed process, whose draft remains under its hidden name.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: Path, *, sync: bool = False) -> Iterator[Path]:
    """Yield the path of a draft, to be created in the block; on success the draft replaces `path`.

    Args:
        path: a file, or a folder that does not exist yet or is empty.
        sync: force the draft, a file, to disk before it is renamed.

    Raises:
        OSError: from the block, or the draft cannot be renamed.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield draft
        if sync:
            sync_path(draft)
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            shutil.rmtree(draft) if draft.is_dir() else draft.unlink(missing_ok=True)
        raise


def replace_bytes(path: Path, content: bytes) -> None:
    """Replace a file by one with this content, forced to disk.

    Raises:
        OSError: as `replacing`.
    """
    with replacing(path, sync=True) as draft:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            write_all(fd, content)
        finally:
            os.close(fd)


def sync_path(path: Path) -> None:
    """Force a file to disk, or the names in a folder.

    Raises:
        OSError: the disk refuses.
    """
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`, in several writes if necessary.

    Raises:
        OSError: some of it may have been written.
    """
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
