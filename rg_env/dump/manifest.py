"""The manifest of a run, in the dump folder: settings, versions, model and task mix of each attempt.

It is replaced atomically, so a crash leaves the old one or the new one, unless a full disk has no room for both when
the run ends; earlier attempts stay listed.
"""

from __future__ import annotations

import errno
import json
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from loguru import logger

from rg_env.atomic import replace_bytes
from rg_env.dump.files import manifest_name
from rg_env.dump.open_file import open_regular
from rg_env.dump.schema import SCHEMA_VERSION
from rg_env.errors import DumpError

_PACKAGES = ("rg_env", "reasoning-gym", "skyrl", "skyrl-gym", "torch", "ray", "transformers", "vllm", "openai", "trl")

MAX_BYTES = 1 << 26
"""A larger manifest counts as damaged."""


def write_manifest(folder: str | Path, run_id: str, content: Mapping[str, Any]) -> Path:
    """Write or update the manifest of a run.

    Args:
        folder: the dump folder.
        run_id: the run.
        content: what the run was started with (`attempt`, model, settings, task mix). Values that JSON cannot represent
            are converted with `str`.

    Returns:
        the file: `content` of the last attempt with versions, host and start time at the top level, and one entry
        for every attempt under `attempts`. An attempt without `ended` (see `end_manifest`) had no regular end.

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
        replace_bytes(path, json.dumps(manifest, indent=2, default=str).encode() + b"\n")
    except OSError as error:
        raise DumpError(f"{path} cannot be written ({error.strerror})") from None
    return path


def end_manifest(folder: Path, run_id: str, attempt: int, missing_groups: int) -> None:
    """Note in the manifest, if there is one, that an attempt closed its dump, and how many groups it lacks: `ended` and
    `missing_groups`, at the top level and in the attempt's entry. Never raises.
    """
    path = folder / manifest_name(run_id)
    end = {"ended": datetime.now(UTC).isoformat(timespec="seconds"), "missing_groups": missing_groups}
    try:
        manifest = _read(path)
        for start in (manifest, *manifest["attempts"]):
            if start.get("attempt") == attempt:
                start |= end
        try:
            replace_bytes(path, json.dumps(manifest, indent=2).encode() + b"\n")
        except OSError:  # a full disk has room for a shorter one in place of the old one
            _overwrite(path, json.dumps(manifest).encode() + b"\n")
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        logger.warning("the end of the run could not be noted in {} ({})", path, error)


def _overwrite(path: Path, content: bytes) -> None:
    if len(content) > path.stat().st_size:
        raise OSError(errno.ENOSPC, "no room in the old manifest")
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()


def read_manifest(folder: Path, run_id: str) -> dict[str, Any] | None:
    """The manifest of a run, or None if it is missing or damaged."""
    try:
        manifest = _read(folder / manifest_name(run_id))
    except (OSError, ValueError, RecursionError):
        return None
    return manifest if isinstance(manifest, dict) else None


def _read(path: Path) -> Any:
    with open_regular(path) as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES} bytes")
    return json.loads(content)


def _attempts(path: Path) -> list[Any]:
    try:
        return list(_read(path)["attempts"])
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        logger.warning("{} is damaged ({}): its entries about earlier attempts are lost", path, error)
        return []


@cache
def _versions() -> dict[str, str]:
    """Versions of the installed packages that affect a run, read without importing them."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
