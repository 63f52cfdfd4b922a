"""The index as a file beside the dump: `.rg_env_index`.

Invariant: rows of a file are handed out only while the file's size, time of change and inode are those that were noted.
"""

from __future__ import annotations

import glob
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import polars as pl

from rg_env.browser.beside import FileState, load_beside, save_beside

INDEX_NAME = ".rg_env_index"
_FORMAT = "rg_env index 2"
"""Changes with the columns and with what they mean: another version's index counts as absent."""


@dataclass(frozen=True)
class Stored:
    """What an index file holds: rows for each file, in the state in which it was read."""

    parts: Mapping[FileState, pl.DataFrame] = field(default_factory=dict)

    def rows_of(self, state: FileState) -> pl.DataFrame | None:
        """The rows of a file that is still in this state, else None."""
        return self.parts.get(state)

    def others(self, folder: Path, mine: Collection[FileState]) -> dict[FileState, pl.DataFrame]:
        """What is noted about files that are still in the folder and not among `mine`."""
        names = {state.name for state in mine}
        return {
            state: rows
            for state, rows in self.parts.items()
            if state.name not in names and any(folder.glob(f"{glob.escape(state.name)}*"))
        }


def load(folder: Path, schema: Mapping[str, pl.DataType]) -> Stored:
    """The index of a folder; an empty one where there is none that can be used."""
    found = load_beside(folder, INDEX_NAME)
    if found is None or found[1].schema != schema:
        return Stored()
    head, rows = found
    try:
        if head["format"] != _FORMAT:
            return Stored()
        parts, start = {}, 0
        for file in head["files"]:
            count = file.pop("rows")
            parts[FileState(**file)] = rows.slice(start, count)
            start += count
        return Stored(parts) if start == rows.height else Stored()
    except (KeyError, TypeError, AttributeError):
        return Stored()


def save(folder: Path, parts: Mapping[FileState, pl.DataFrame]) -> bool:
    """Write the index of a folder in place of the one that is there.

    Args:
        folder: of the dump files.
        parts: the rows of each file.

    Returns:
        False where the folder does not let us: then nothing is left behind.
    """
    head = {"format": _FORMAT, "files": [asdict(state) | {"rows": rows.height} for state, rows in parts.items()]}
    return save_beside(folder, INDEX_NAME, head, pl.concat(parts.values()), next(iter(parts)))
