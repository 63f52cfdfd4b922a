"""Which run this is: its id and attempt, kept beside SkyRL's checkpoints, and its manifest in the dump folder.

Invariant: a run that resumes from its checkpoints keeps its id and gets the next attempt number; a run that starts anew
gets a new id. Both files are replaced in one step, so that a crash leaves the old one or the new one.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from loguru import logger

from rg_env.dump.files import manifest_name, write_all
from rg_env.dump.schema import SCHEMA_VERSION
from rg_env.errors import DumpError

RUN_FILE = "rg_env_run.json"
_PACKAGES = ("rg_env", "reasoning-gym", "skyrl", "skyrl-gym", "torch", "ray", "transformers", "vllm")


def new_run_id() -> str:
    """A run id that sorts by time (UTC): letters, digits and hyphens.

    Of a thousand runs that are started in the same second, on any hosts, two have the same id once in 8,600 times.
    """
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


def claim_run(ckpt_path: str | Path, *, resuming: bool) -> tuple[str, int]:
    """The run id and attempt for a training that is about to start, noted beside its checkpoints.

    Args:
        ckpt_path: SkyRL's `trainer.ckpt_path`; made if need be. URLs (`s3://…`) go through fsspec, as SkyRL's do.
        resuming: True when SkyRL is going to load a checkpoint from there.

    Returns:
        (run_id, attempt); attempt counts from 1.

    Raises:
        DumpError: the folder cannot be written, or its run file is damaged.
    """
    store = _Url(str(ckpt_path)) if "://" in str(ckpt_path) else _Folder(Path(ckpt_path))
    run_id, attempt = new_run_id(), 1
    try:
        known = store.read() if resuming else None
        if known is not None:
            run = json.loads(known)
            run_id, attempt = str(run["run_id"]), int(run["attempt"]) + 1
        store.write(_to_json({"run_id": run_id, "attempt": attempt}))
    except OSError as error:
        raise DumpError(f"{ckpt_path} cannot keep the run's id ({error}): choose another trainer.ckpt_path") from None
    except (ValueError, KeyError, TypeError):
        raise DumpError(
            f"{store.name} is damaged: remove it to go on under a new run id, or mend it "
            '({"run_id": …, "attempt": …}, as the dump folder\'s manifest has them)'
        ) from None
    return run_id, attempt


def write_manifest(folder: str | Path, run_id: str, content: Mapping[str, Any]) -> Path:
    """Write or renew the manifest of a run.

    Args:
        folder: the dump folder.
        run_id: the run.
        content: what the run was started with (`attempt`, model, settings, task mix). Values that JSON does not know
            are written as their text.

    Returns:
        the file: `content` of the last attempt with versions, host and time of start at the top level, and one entry
        for every attempt under `attempts`.

    Raises:
        DumpError: the folder cannot be written.
    """
    path = Path(folder) / manifest_name(run_id)
    start = {
        "attempt": content.get("attempt", 1),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": platform.node(),
        "process": os.getpid(),
        "versions": _versions(),
    }
    manifest = {"schema_version": SCHEMA_VERSION, "run_id": run_id, **start, **content}
    manifest["attempts"] = [*_attempts(path), {**start, **content}]
    try:
        _replace(path, _to_json(manifest))
    except OSError as error:
        raise DumpError(f"{path} cannot be written ({error.strerror})") from None
    return path


def read_manifest(folder: Path, run_id: str) -> dict[str, Any] | None:
    """The manifest of a run, or None where there is none or it is damaged."""
    try:
        manifest = json.loads((folder / manifest_name(run_id)).read_bytes())
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) else None


def _attempts(path: Path) -> list[Any]:
    try:
        return list(json.loads(path.read_bytes())["attempts"])
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("{} is damaged ({}): what it said about earlier attempts is lost", path, error)
        return []


@cache
def _versions() -> dict[str, str]:
    """Versions of what shapes a run, without importing any of it; what is not installed is left out."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _to_json(content: object) -> bytes:
    return json.dumps(content, indent=2, default=str).encode() + b"\n"


def _replace(path: Path, content: bytes) -> None:
    """Replace a file in one step, forced to disk."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        try:
            write_all(handle, content)
            os.fsync(handle)
        finally:
            os.close(handle)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


class _Folder:
    """The run file in a local checkpoint folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / RUN_FILE
        self.name = str(self._path)

    def read(self) -> bytes | None:
        return self._path.read_bytes() if self._path.exists() else None

    def write(self, content: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        _replace(self._path, content)


class _Url:
    """The run file beside checkpoints in object storage, where a put is atomic by itself."""

    def __init__(self, url: str) -> None:
        import fsspec

        self.name = f"{url.rstrip('/')}/{RUN_FILE}"
        self._fs, self._path = fsspec.core.url_to_fs(self.name)

    def read(self) -> bytes | None:
        return bytes(self._fs.cat_file(self._path)) if self._fs.exists(self._path) else None

    def write(self, content: bytes) -> None:
        self._fs.makedirs(self._fs._parent(self._path), exist_ok=True)
        self._fs.pipe_file(self._path, content)
