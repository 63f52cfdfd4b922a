"""Replaces a file or folder atomically: the new one is written under a hidden name and then renamed.

`check_output` looks at the name of a file first, before the work that fills it.

Invariant: a reader finds the old one or the whole new one, never a part; a failed write leaves nothing behind. Not
covered: a power failure, unless `sync` is set, and a killed process, whose draft remains under its hidden name.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path

from rg_env.base.errors import ConfigError, one_line

_STAMP = "%Y%m%d-%H%M%S"


def check_output(path: str | Path, ending: str, *, force: bool = True) -> Path:
    """Return the path of a file that a user has named to be written.

    Args:
        ending: of its name, such as `.jsonl`.
        force: accept a file that exists.

    Raises:
        ConfigError: there cannot be such a file, or it exists.
    """
    out = Path(path).expanduser()
    if out.suffix.lower() != ending:
        raise ConfigError(f"{out}: the name must end in {ending}")
    if os.path.isdir(out):
        raise ConfigError(f"{out} is a folder: give the name of a file")
    if not force and os.path.exists(out):
        raise ConfigError(f"{out} exists: choose another name, or replace it with --force")
    return out


NOT_A_FOLDER_NAME = "it names the run's folder; write a name without slashes"


def is_folder_name(name: str) -> bool:
    """Return whether a run's name can be that of its folder."""
    return name.strip() not in ("", ".", "..") and "/" not in name


def make_new_folder(stem: Path) -> Path:
    """Make the folder `STEM-DATE-TIME`, which nobody else has.

    Its name sorts after all others of this stem: if the clock has been set back, its time is one second after the last.

    Raises:
        ConfigError: it cannot be made.
    """
    while True:
        folder = stem
        try:
            stem.parent.mkdir(parents=True, exist_ok=True)
            folder = stem.with_name(f"{stem.name}-{_next_stamp(stem)}")
            folder.mkdir()
        except FileExistsError:
            # What exists may be a file in the place of the parent folder, for which waiting would not help.
            if not os.path.isdir(folder.parent):
                raise ConfigError(f"{folder.parent} is a file: choose other paths") from None
            time.sleep(0.1)
        except OSError as error:
            raise ConfigError(f"{folder} cannot be made ({error.strerror}); choose other paths") from None
        else:
            return folder


def _next_stamp(stem: Path) -> str:
    """Return the time for the name of a new folder: now, or if others have this time or a later one, a second more."""
    stamp = time.strftime(_STAMP)
    for path in stem.parent.iterdir():
        other = path.name.removeprefix(f"{stem.name}-")
        if other == path.name or other < stamp:
            continue
        with suppress(ValueError, OverflowError):  # it only begins as ours do
            stamp = (datetime.strptime(other, _STAMP) + timedelta(seconds=1)).strftime(_STAMP)
    return stamp


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """`replacing`, for a file or folder that a user has named: the folder around it is made, too.

    Raises:
        ConfigError: it cannot be written. An error that names a file elsewhere, which the block read, stays as it is.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as draft:
            yield draft
    except OSError as error:
        if _is_elsewhere(error, path.parent):
            raise
        # A full disk, or too many open files, would be the same under another name.
        advice = ": choose another name" if error.errno in _ABOUT_NAMES else ""
        raise ConfigError(f"{path} cannot be written ({error.strerror or one_line(error)}){advice}") from None


_ABOUT_NAMES = (
    errno.EACCES,
    errno.EEXIST,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ENOTEMPTY,
    errno.EPERM,
    errno.EROFS,
)
"""What the system says where a file of this name cannot be."""


def _is_elsewhere(error: OSError, folder: Path) -> bool:
    """Return whether an error names a file that is not in a folder, nor around it."""
    if not isinstance(error.filename, (str, Path)):
        return False
    named, folder = Path(error.filename).absolute(), folder.absolute()
    return not (named.is_relative_to(folder) or folder.is_relative_to(named))


@contextmanager
def replacing(path: Path, *, sync: bool = False) -> Iterator[Path]:
    """Yield the path of a draft, to be created in the block; on success the draft replaces `path`.

    Args:
        path: a file, or a folder that does not exist yet or is empty.
        sync: force the draft, a file, to disk before it is renamed.

    Raises:
        OSError: from the block, or the draft cannot be renamed.
    """
    # Beside the file, because a rename is atomic only within one file system.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield draft
        if sync:
            sync_path(draft)
        draft.replace(path)
    except BaseException:
        # Also for Ctrl-C, so that no draft is left.
        with suppress(OSError):
            if draft.is_dir():
                shutil.rmtree(draft)
            else:
                draft.unlink(missing_ok=True)
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


def sync_path(path: Path) -> bool:
    """Force a file to disk, or the names in a folder. Returns and raises as `sync_fd`."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return sync_fd(fd)
    finally:
        os.close(fd)


def sync_fd(fd: int) -> bool:
    """Force an open file to disk, or the names in a folder.

    Returns:
        False if its file system has no such call: CIFS, some of FUSE's and Windows drives in WSL have none for folders.

    Raises:
        OSError: the disk has failed.
    """
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _HAS_NO_SYNC:
            raise
        return False
    return True


_HAS_NO_SYNC = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`, in several writes if necessary.

    Raises:
        OSError: some of it may have been written.
    """
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
