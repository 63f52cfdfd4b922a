"""The id and attempt of a run, stored next to SkyRL's checkpoints.

Invariant: a run that resumes from its checkpoints keeps its id and gets the next attempt number; any other run gets a
new id. The file is replaced atomically, so a crash leaves the old one or the new one.
"""

from __future__ import annotations

import json
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rg_env.atomic import replace_bytes
from rg_env.errors import DumpError

RUN_FILE = "rg_env_run.json"


def new_run_id() -> str:
    """A run id that sorts by time (UTC): letters, digits and hyphens.

    The chance that two of a thousand runs started in the same second, on any hosts, share an id is 1 in 8,600.
    """
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


def claim_run(ckpt_path: str | Path, *, resuming: bool) -> tuple[str, int]:
    """Determine the run id and attempt of a training run, and store them next to its checkpoints.

    Args:
        ckpt_path: SkyRL's `trainer.ckpt_path`; created if missing. URLs (`s3://…`) go through fsspec, as SkyRL's do.
        resuming: True when SkyRL is going to load a checkpoint from there.

    Returns:
        (run_id, attempt); attempt counts from 1.

    Raises:
        DumpError: the folder cannot be written, or its run file is damaged.
    """
    folder = str(ckpt_path)
    path = f"{folder.rstrip('/')}/{RUN_FILE}"
    run_id, attempt = new_run_id(), 1
    try:
        known = _read(path) if resuming else None
        if known is not None:
            run = json.loads(known)
            run_id, attempt = str(run["run_id"]), int(run["attempt"]) + 1
        _write(path, json.dumps({"run_id": run_id, "attempt": attempt}, indent=2).encode() + b"\n")
    except OSError as error:
        raise DumpError(f"{ckpt_path}: cannot write the run id ({error}): choose another trainer.ckpt_path") from None
    except (ValueError, KeyError, TypeError):
        raise DumpError(
            f"{path} is damaged: remove it to continue under a new run id, or repair it "
            '({"run_id": …, "attempt": …}, as in the manifest in the dump folder)'
        ) from None
    return run_id, attempt


def _read(path: str) -> bytes | None:
    if "://" not in path:
        return Path(path).read_bytes() if Path(path).exists() else None
    system, name = _object_store(path)
    return bytes(system.cat_file(name)) if system.exists(name) else None


def _write(path: str, content: bytes) -> None:
    if "://" not in path:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        replace_bytes(Path(path), content)
        return
    system, name = _object_store(path)  # a put is atomic
    system.makedirs(system._parent(name), exist_ok=True)
    system.pipe_file(name, content)


def _object_store(url: str) -> tuple[Any, str]:
    import fsspec

    system, name = fsspec.core.url_to_fs(url)
    return system, name
