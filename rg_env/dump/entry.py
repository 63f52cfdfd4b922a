"""Opening what was recorded: folders, files, or an exported table."""

from __future__ import annotations

from pathlib import Path

from rg_env.base.errors import DumpError
from rg_env.dump.files import list_files
from rg_env.dump.reader import Dump
from rg_env.dump.run_files import find_runs


def open_run(*paths: str | Path) -> Dump:
    """Find the dumps in folders and files.

    Args:
        paths: dump folders, and single files of dumps; or one table that `rg-env dumps export parquet` has written.

    Raises:
        DumpError: a path does not exist, or there is no dump in it.
    """
    if any(Path(path).suffix == ".parquet" for path in paths):
        from rg_env.dump.table import open_table

        if len(paths) > 1:
            raise DumpError("a table is read alone: name one, or the dumps that it was exported from")
        return open_table(Path(paths[0]))
    return Dump(find_runs(paths))


def open_run_of(folder: str | Path, run_id: str) -> Dump:
    """Open a single run, in a folder that may hold others; without files of this run, a dump of no runs."""
    paths = [file.path for file in list_files(Path(folder), run_id)]
    if not paths:
        return Dump(())
    return open_run(*paths)
