"""The rollouts that statistics are made of, left beside a big dump so that asking again takes no reading.

Invariant: what was left is used only for the very files that it was made from, as long as each has the size, time of
change and inode that it had before it was read, and only if all of their lines could be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import polars as pl

from rg_env.browser.beside import WORTH_KEEPING, FileState, load_beside, save_beside

if TYPE_CHECKING:
    from rg_env.dump.read.dump import Dump

ROWS_NAME = ".rg_env_rows"
_FORMAT = "rg_env rows 1"
"""Changes with what the columns mean."""


def rows_of(dump: Dump, schema: Mapping[str, pl.DataType], read: Callable[[], pl.DataFrame]) -> pl.DataFrame:
    """What `read` returns, from beside the dump if it was left there.

    Args:
        dump: whose files `read` reads, those that `Dump.frames` reads.
        schema: of the frame.
        read: called where nothing was left, or where a file has changed since.
    """
    files = dump.files_to_read()
    folders = {file.path.parent for file in files}
    states = [FileState.of(file.path) for file in files]
    if len(folders) != 1 or sum(state.size for state in states) < WORTH_KEEPING:
        return read()
    (folder,) = folders
    head = {"format": _FORMAT, "files": [asdict(state) for state in states]}
    found = load_beside(folder, ROWS_NAME)
    if found is not None and found[0] == head and found[1].schema == schema:
        return found[1]
    rows = read()
    if not dump.problems:
        save_beside(folder, ROWS_NAME, head, rows, states[0])
    return rows
