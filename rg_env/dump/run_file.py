"""What is noted beside the checkpoints of a training: its id, its attempt and its settings.

Invariant: a run that resumes from its checkpoints keeps its id and gets the next attempt number; any other run gets a
new id. The file is replaced atomically.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loguru import logger

from rg_env.base.atomic import replace_bytes
from rg_env.base.errors import DumpError
from rg_env.dump.files import HeldError, RunLock
from rg_env.dump.manifest import as_json_bytes, new_run_id

RUN_FILE = "rg_env_run.json"


def lock_checkpoints(ckpt_path: str | Path) -> list[RunLock]:
    """Take the folder of a run's checkpoints for this process: two runs in it would mix their checkpoints, whatever
    dump folders they have. Call it before `claim_run`.

    Returns:
        the lock; none where nothing can be locked: behind a URL, and on a disk without locks.

    Raises:
        HeldError: another process trains there. DumpError: the folder cannot be made.
    """
    if "://" in str(ckpt_path):
        return []
    folder = Path(ckpt_path).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(ckpt_path, error) from None
    try:
        return [RunLock(folder, "checkpoints", "a run", "trainer.ckpt_path")]
    except HeldError:
        raise
    except DumpError as error:
        logger.warning("{}; nothing keeps another run from writing its checkpoints there, too", error)
        return []


def claim_run(ckpt_path: str | Path, *, resuming: bool, settings: Mapping[str, Any] | None = None) -> tuple[str, int]:
    """Determine the run id and attempt of a training run, and store them next to its checkpoints.

    Args:
        ckpt_path: SkyRL's `trainer.ckpt_path`; created if missing. URLs (`s3://…`) go through fsspec, as SkyRL's do.
        resuming: True when SkyRL is going to load a checkpoint from there.
        settings: all settings of the run, which are stored, too: a run is continued with the same ones only.

    Returns:
        (run_id, attempt); attempt counts from 1.

    Raises:
        DumpError: the folder cannot be written, or its run file is corrupt.
    """
    run_id, attempt = new_run_id(), 1
    try:
        # A run that loads no checkpoint is another one, although an earlier run's file may lie there.
        known = read_beside(ckpt_path, RUN_FILE) if resuming else None
        if known is not None:
            run = json.loads(known)
            run_id, attempt = str(run["run_id"]), int(run["attempt"]) + 1
        content: dict[str, Any] = {"run_id": run_id, "attempt": attempt}
        if settings is not None:
            content["settings"] = settings
        _write_run_file(f"{str(ckpt_path).rstrip('/')}/{RUN_FILE}", as_json_bytes(content))
    except OSError as error:
        raise _unusable(ckpt_path, error) from None
    except (ValueError, KeyError, TypeError):
        raise DumpError(
            f"{ckpt_path}/{RUN_FILE} is corrupt: remove it to continue under a new run id, or repair it "
            '({"run_id": …, "attempt": …}, as in the manifest in the dump folder)'
        ) from None
    return run_id, attempt


def _unusable(ckpt_path: str | Path, error: OSError) -> DumpError:
    return DumpError(f"{ckpt_path}: cannot write the run id ({error}): choose another trainer.ckpt_path")


def read_run_file(ckpt_path: str | Path) -> dict[str, Any] | None:
    """Read what is noted next to the checkpoints of a run: `run_id`, `attempt`, `settings`. None: nothing that is
    whole."""
    try:
        run = json.loads(read_beside(ckpt_path, RUN_FILE) or b"")
    except (OSError, ValueError):
        return None
    return run if isinstance(run, dict) else None


def read_beside(ckpt_path: str | Path, name: str) -> bytes | None:
    """Return a file in a folder of checkpoints, which may be a URL; None if there is none. Raises OSError."""
    path = f"{str(ckpt_path).rstrip('/')}/{name}"
    if "://" not in path:
        file = Path(path).expanduser()
        return file.read_bytes() if file.exists() else None
    system, key = _object_store(path)
    return bytes(system.cat_file(key)) if system.exists(key) else None


def _write_run_file(path: str, content: bytes) -> None:
    if "://" not in path:
        file = Path(path).expanduser()
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_bytes(file, content)
        return
    system, name = _object_store(path)  # a put is atomic
    system.makedirs(system._parent(name), exist_ok=True)
    system.pipe_file(name, content)


def _object_store(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path there. Raises OSError: there is no such one, or no package for
    it."""
    import fsspec

    try:
        system, name = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise OSError(str(error)) from error
    return system, name
