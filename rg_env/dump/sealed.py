"""Finished files of a dump as zstd, in the seekable format: a tenth of the size, and any group opens as fast.

Invariant: a plain file goes only after the sealed one is on disk and was read back with the same bytes. A kill leaves
the plain file, perhaps beside its sealed one, and the next call goes on from there. Any zstd reads a sealed file. Not
covered: files that another program compressed, which stay as they are.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from rg_env.base.atomic import replacing, sync_path
from rg_env.base.errors import DumpError
from rg_env.dump.files import COMPRESSED, READ_ERRORS, open_lines, open_regular, why_unreadable
from rg_env.dump.run_files import find_runs

FRAME = 1 << 18
"""Bytes that are decompressed to read one line."""
_ENDING = ".zst"


@dataclass
class Sealed:
    """What was done: `files`, their size in bytes `before` and `after`; `still_open` files are being filled, or were
    when their run was killed."""

    files: int = 0
    before: int = 0
    after: int = 0
    still_open: int = 0


def seal(*paths: str | Path) -> Sealed:
    """Replace the finished plain files of dumps.

    Args:
        paths: dump folders, and single files.

    Raises:
        DumpError: as `open_run`; or a file cannot be sealed. It then stays, and so do those after it.
    """
    result = Sealed()
    for run in find_runs(paths):
        for file in run.files:
            if file.is_open:
                result.still_open += 1
            elif file.path.suffix not in COMPRESSED:
                try:
                    _seal_file(file.path, result)
                except READ_ERRORS as error:
                    raise DumpError(
                        f"{file.path} cannot be sealed ({why_unreadable(error)}): it stays as it is, nothing is lost"
                    ) from None
    return result


def _seal_file(path: Path, result: Sealed) -> None:
    from pyzstd import SeekableZstdFile

    sealed = path.with_name(path.name + _ENDING)
    if not sealed.exists():
        with replacing(sealed, sync=True) as draft:
            with open_regular(path) as plain, SeekableZstdFile(draft, "x", max_frame_content_size=FRAME) as file:
                shutil.copyfileobj(plain, file, FRAME)
            shutil.copystat(path, draft)
        sync_path(path.parent)
    if not _is_equal(path, sealed):
        raise DumpError(f"{sealed} is there and differs from {path.name}: remove the one that is wrong")
    result.files += 1
    result.before += path.stat().st_size
    result.after += sealed.stat().st_size
    path.unlink()


def _is_equal(path: Path, sealed: Path) -> bool:
    """Return whether a sealed file has the bytes of a plain one."""
    with open_regular(path) as plain, open_lines(sealed) as lines:
        return all(one == other for one, other in zip_longest(plain, lines))
