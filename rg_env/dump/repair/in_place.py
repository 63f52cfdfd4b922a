"""Repairing a dump in its own folder, so that a kill at any moment loses nothing.

Invariant: at any moment each file of the dump is in the dump folder or in one of three folders in it, whose names show
the progress; another call continues from there. Damaged files are moved, never changed or removed.

| folder             | means                                                        | another call           |
|--------------------|--------------------------------------------------------------|------------------------|
| `.recovering`      | the copy is being made                                       | makes the copy again   |
| `.recovered-STAMP` | the copy is whole, damaged files are moved to `damaged-STAMP` | moves the rest of them |
| `.arriving-STAMP`  | they are all there, the copy is moved into the dump folder    | moves the rest of it   |
"""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from rg_env.atomic import sync_path
from rg_env.dump.files import PREFIX, parse_name
from rg_env.dump.lock import RunLock
from rg_env.dump.read.chunks import Watch
from rg_env.dump.read.dump import Run, open_run
from rg_env.dump.repair.changes import Recovery
from rg_env.dump.repair.recover import copy_runs
from rg_env.errors import DumpError

_MAKING, _WHOLE, _COMING, _ASIDE = ".recovering", ".recovered-", ".arriving-", "damaged-"
_MOVING = "moving.json"
"""In the copy's folder: the names of the damaged files."""


def recover_in_place(folder: str | Path, *, advance: Watch | None = None) -> tuple[list[Recovery], Path | None]:
    """Repair the damaged runs of a dump folder, after finishing an interrupted earlier call.

    Args:
        folder: a dump folder.
        advance: called with the bytes read since the last call.

    Returns:
        the result for each run, and the folder to which damaged files were moved, or None if all were sound.

    Raises:
        DumpError: no dump there, a file cannot be opened, a run is being written now, the folder cannot be written, or
            the dump was written to since an earlier call was killed.
        NewerSchemaError: a file needs a later version of rg_env.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DumpError(f"{folder} is not a folder: only a whole dump folder can be repaired in place")
    try:
        aside = _finish_moves(folder)
        runs = open_run(folder).runs
        with ExitStack() as locks:
            for run in runs:
                locks.callback(RunLock(folder, run.run_id).release)
            making = folder / _MAKING
            shutil.rmtree(making, ignore_errors=True)
            making.mkdir()
            reports = copy_runs(runs, making, whole=True, advance=advance)
            damaged = [run for run, report in zip(runs, reports, strict=True) if report.changes.total]
            if not damaged:
                shutil.rmtree(making)
                return reports, aside
            _seal(making, damaged)
            making.rename(folder / f"{_WHOLE}{datetime.now(UTC):%Y%m%d-%H%M%S-%f}")
            sync_path(folder)
        return reports, _finish_moves(folder)
    except OSError as error:
        raise DumpError(f"{folder} cannot be repaired in place ({error}): use --out with another folder") from None


def _seal(making: Path, damaged: list[Run]) -> None:
    """Keep only the copies of damaged runs, record the files that they replace, and force everything to disk."""
    runs = {run.run_id for run in damaged}
    for path in list(making.iterdir()):
        file = parse_name(path)
        if file is None or file.run_id not in runs:  # a sound run, or a manifest: they stay where they are
            path.unlink()
    names = [file.path.name for run in damaged for file in run.files]
    (making / _MOVING).write_text(json.dumps(names))
    for path in making.iterdir():
        sync_path(path)
    sync_path(making)


def _finish_moves(folder: Path) -> Path | None:
    """Do the pending moves; returns the folder of the damaged files, or None."""
    aside = None
    for copy in sorted(folder.glob(f"{_WHOLE}*")):
        stamp = copy.name.removeprefix(_WHOLE)
        with _locked(folder, copy):
            aside = _move_aside(folder, copy, folder / f"{_ASIDE}{stamp}")
            copy.rename(folder / f"{_COMING}{stamp}")
            sync_path(folder)
    for copy in sorted(folder.glob(f"{_COMING}*")):
        with _locked(folder, copy):
            _move_in(folder, copy)
        aside = folder / f"{_ASIDE}{copy.name.removeprefix(_COMING)}"
    return aside


def _locked(folder: Path, copy: Path) -> ExitStack:
    """Hold the locks of the runs that are replaced."""
    locks = ExitStack()
    for run_id in sorted(_runs(copy)):
        locks.callback(RunLock(folder, run_id).release)
    return locks


def _move_aside(folder: Path, copy: Path, aside: Path) -> Path:
    names = _moving(copy)
    runs = _runs(copy)
    aside.mkdir(exist_ok=True)
    for path in folder.glob(f"{PREFIX}_*"):
        file = parse_name(path)
        if file is not None and file.run_id in runs and path.name not in names:
            raise DumpError(_written_since(path, copy, aside))
    for name in names:
        path = folder / name
        if path.exists():
            path.rename(aside / name)
        elif not (aside / name).exists():
            raise DumpError(_written_since(path, copy, aside))
    sync_path(aside)
    return aside


def _move_in(folder: Path, copy: Path) -> None:
    aside = folder / f"{_ASIDE}{copy.name.removeprefix(_COMING)}"
    for path in sorted(copy.iterdir()):
        if path.name == _MOVING:
            continue
        if (folder / path.name).exists():
            raise DumpError(_written_since(folder / path.name, copy, aside))
        path.rename(folder / path.name)
    sync_path(folder)
    (copy / _MOVING).unlink(missing_ok=True)
    copy.rmdir()


def _written_since(path: Path, copy: Path, aside: Path) -> str:
    return (
        f"{path.name} has changed since the repair was interrupted: the repaired files are in {copy}, the damaged ones "
        f"in {path.parent} and {aside.name}; collect them in another folder and use --out"
    )


def _moving(copy: Path) -> list[str]:
    try:
        names = json.loads((copy / _MOVING).read_text())
    except FileNotFoundError:  # killed just before the empty folder was removed
        return []
    except (ValueError, RecursionError) as error:
        raise DumpError(f"{copy / _MOVING} is damaged ({error}): use --out with another folder") from None
    if not isinstance(names, list) or not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise DumpError(f"{copy / _MOVING} is not a list of file names: use --out with another folder")
    return names


def _runs(copy: Path) -> set[str]:
    files = (parse_name(copy / name) for name in _moving(copy))
    return {file.run_id for file in files if file is not None}
