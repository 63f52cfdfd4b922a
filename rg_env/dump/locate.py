"""The dump that somebody means by a path.

Invariant: a file, or a folder with a dump, is always what was typed. Otherwise a path that leaves nothing to choose is
completed, and a typing error is an error that says what is there. Nothing is opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rg_env.base.errors import DumpError, similar_words
from rg_env.dump.run_files import dump_folders

RUNS = Path("runs")
"""The folder in which the recipes put their runs."""
_DUMPS = "dumps"
"""The folder of a run's own dump, beside those of its evaluations."""


def locate(path: Path) -> Path:
    """Return the dump folder or file for a path; the path itself if nothing better is known.

    A folder is completed if it has a folder `dumps`, or if there is one dump below it. A path that does not exist is
    also looked for in `runs`, so that the name of a run is enough.

    Raises:
        DumpError: there is no such path, but one with a similar name.
    """
    for place in _places(path):
        if os.path.isdir(place):  # False, too, where it cannot be asked
            return _dump_in(place)
        if os.path.exists(place):
            return place
    similar: dict[Path, Path] = {}
    for dump in _similar(path):
        similar.setdefault(dump.resolve(), dump)  # once under the nearest name, whatever links to it
    if similar:
        raise DumpError(f"{path} does not exist; did you mean {' or '.join(map(str, similar.values()))}?")
    return path


def _places(path: Path) -> Iterator[Path]:
    yield path
    if not path.is_absolute():
        yield RUNS / path


def _dump_in(folder: Path) -> Path:
    """Return the dump of a folder: itself, its `dumps`, or the only one below it; the folder if that is not clear."""
    below = dump_folders(folder)
    if folder in below:
        return folder
    if folder / _DUMPS in below:
        return folder / _DUMPS
    return below[0] if len(below) == 1 else folder


def _similar(path: Path) -> Iterator[Path]:
    """Dumps below folders that are called nearly like the first part of the path that does not exist."""
    for place in _places(path):
        missing = place
        while not os.path.isdir(missing.parent):
            missing = missing.parent
        siblings: list[str] = []
        with suppress(OSError):
            siblings = [entry.name for entry in missing.parent.iterdir() if os.path.isdir(entry)]
        for name in similar_words(missing.name, siblings):
            rest = place.relative_to(missing)
            near = missing.with_name(name)
            # What was typed below the misspelled folder, if that is there as well.
            candidate = near / rest
            dump = _dump_in(candidate if os.path.isdir(candidate) else near)
            if dump in dump_folders(dump, depth=0):
                yield dump
