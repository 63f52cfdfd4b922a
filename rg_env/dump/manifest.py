"""The manifest of a run, in its dump folder: settings, versions, model and task mix of each attempt, and how it ended.

Invariant: it is replaced atomically, so a crash leaves the old one or the new one, unless a full disk has no room for
two manifests when the run ends. Earlier attempts stay listed.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

import msgspec
from loguru import logger
from msgspec import NODEFAULT, UNSET, Struct
from msgspec.structs import replace

from rg_env.base.atomic import replace_bytes
from rg_env.base.errors import ConfigError, DumpError
from rg_env.configuration.config import PREFIX, RGDumpConfig
from rg_env.configuration.settings import check_value, fields_of, set_value
from rg_env.dump.files import is_held, manifest_name, open_regular
from rg_env.dump.schema import SCHEMA_VERSION

MAX_BYTES = 1 << 26
"""A larger manifest counts as corrupt."""
_PACKAGES = ("rg_env", "reasoning-gym", "skyrl", "skyrl-gym", "torch", "ray", "transformers", "vllm", "openai", "trl")
_written: dict[Path, bytes] = {}
"""The manifests that this process has written, by path: somebody may remove or rename their folder during the run."""
_NOT_NEEDED = {"tasks", "worked_examples"}
"""Settings that no reader of a dump needs."""


def new_run_id() -> str:
    """Return a run id that sorts by time (UTC): letters, digits and hyphens.

    The chance that two of a thousand runs started in the same second, on any hosts, share an id is 1 in 8,600.
    """
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


class Attempt(Struct, kw_only=True, omit_defaults=True):
    """What is noted about an attempt of a run: how it was started, and how it ended. What is not known has its default,
    and is not written.

    Attributes:
        attempt: its number, from 1; `started`, `ended`: times (ISO 8601). Without `ended` it had no regular end.
        host, process, versions: of the machine, the process (its id) and the installed packages.
        kind: `train`, `eval`, `collect` or `import`; `name`: of the run; `trainer`: if it is not SkyRL's.
        model, model_path, endpoint: the model's name, its folder if this machine served it, the server's URL if not.
        settings: all settings by their names, nested; `task_mix`: the task mix as it was given.
        question_files: the SHA-256 of each file of questions, by task and split.
        questions_left_out: numbers of the rows that the audit left out, by task and split.
        plan, suite: of an evaluation or collection: what determines its groups, and its set of questions.
        imported: of an import: its source, and what that lacks.
        total_steps: the number of training steps that SkyRL computed.
        ledger_lines: how many lines the attempt wrote to the ledger, also if it was killed before it could note them.
        missing_groups: groups that could not be written.
        end: `finished`, `stopped by SIGTERM`, `killed` or `failed: …`; empty if nobody could note it.
    """

    attempt: int | None = None
    started: str | None = None
    host: str = ""
    process: int | None = None
    versions: dict[str, str] = {}
    kind: str = ""
    name: str = ""
    trainer: str = ""
    model: str = ""
    model_path: str | None = None
    endpoint: str | None = None
    plan: dict[str, Any] | None = None
    suite: dict[str, Any] | None = None
    settings: dict[str, Any] | None = None
    task_mix: Any = None
    question_files: dict[str, Any] | None = None
    questions_left_out: dict[str, Any] | None = None
    imported: dict[str, Any] = {}
    total_steps: int | None = None
    ledger_lines: int | None = None
    ended: str | None = None
    missing_groups: int = 0
    end: str = ""

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Self:
        """Return what a manifest contains. It may come from anywhere: a value of another type is not known."""
        known = {}
        for field in _fields(cls):
            with suppress(KeyError, msgspec.ValidationError):
                known[field.name] = msgspec.convert(content[field.name], field.type)
        return cls(**known)

    def as_json(self) -> dict[str, Any]:
        """Return what is known, as `write_manifest` writes it."""
        known = {}
        for field in _fields(type(self)):
            value = getattr(self, field.name)
            if value != _default_of(field):
                known[field.name] = value
        return known

    @property
    def rg_dump(self) -> RGDumpConfig | None:
        """Our settings; what is absent or invalid today has its default. None if there are none."""
        values = nested_value(self.settings, PREFIX)
        if not isinstance(values, Mapping):
            return None
        # Each setting by itself: one that is invalid today does not cost the others.
        config = RGDumpConfig()
        for name, field in fields_of(config):
            with suppress(ConfigError):
                value = nested_value(values, name, default=UNSET)
                if value is not UNSET and name not in _NOT_NEEDED:
                    check_value(name, value, field.type, field.metadata)
                    set_value(config, name, value)
        return config


class Manifest(Attempt, kw_only=True, omit_defaults=True):
    """The manifest of a run: what is noted about its last attempt, and about each one under `attempts`.

    This is the only place that spells its keys. Read by `rg_env.analysis`, `rg_env.evaluate` and
    `rg_env.rollouts.symptoms`.
    """

    schema_version: int | None = None
    run_id: str = ""
    attempts: list[Attempt] = []

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Self:
        attempts = content.get("attempts")
        if not isinstance(attempts, list):
            attempts = []
        entries = [Attempt.read(entry) for entry in attempts if isinstance(entry, dict)]
        manifest = super().read({**content, "attempts": []})
        manifest.attempts = entries
        return manifest

    @property
    def missing_in_all(self) -> int:
        """The number of groups that could not be written, in all attempts."""
        return sum(attempt.missing_groups for attempt in self.attempts)

    @property
    def planned_steps(self) -> int | None:
        """The number of training steps that the run was started for; None if unknown."""
        if self.total_steps is not None:
            return self.total_steps
        steps = nested_value(self.settings, "trainer.max_training_steps")
        return steps if isinstance(steps, int) else None


@cache  # it evaluates annotations, and a folder may have thousands of manifests
def _fields(kind: type[Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def _default_of(field: msgspec.structs.FieldInfo) -> Any:
    if field.default is NODEFAULT:
        return field.default_factory()
    return field.default


def nested_value(value: Any, path: str, default: Any = None) -> Any:
    """Return the value at a path such as `trainer.max_training_steps` in nested mappings, any of which may be missing
    or of another type."""
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return default
        value = value[name]
    return value


def write_manifest(folder: str | Path, run_id: str, start: Attempt) -> Path:
    """Write or update the manifest of a run.

    Args:
        folder: the dump folder.
        run_id: the run.
        start: what the attempt is started with; its versions, host and start time are added. Values that JSON cannot
            represent are converted with `str`.

    Returns:
        the file: the last attempt at the top level, and one entry for every attempt under `attempts`.

    Raises:
        DumpError: the folder cannot be written.
    """
    path = Path(folder) / manifest_name(run_id)
    now = {
        "attempt": 1,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": platform.node(),
        "process": os.getpid(),
        "versions": _versions(),
    }
    entry = now | start.as_json()
    # A corrupt manifest costs the notes on earlier attempts; it must not keep the run from starting.
    earlier: list[Any] = []
    try:
        earlier = list(_load(path)["attempts"])
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        logger.warning("{} is corrupt ({}): its entries about earlier attempts are lost", path, error)
    # The top level repeats the last attempt.
    manifest = {"schema_version": SCHEMA_VERSION, "run_id": run_id, **entry, "attempts": [*earlier, entry]}
    try:
        _replace(path, as_json_bytes(manifest))
    except OSError as error:
        raise DumpError(f"{path} cannot be written ({error.strerror})") from None
    return path


def restore_manifest(folder: Path, run_id: str) -> None:
    """Write the manifest again if this process has written it, and it is gone. Raises OSError."""
    path = folder / manifest_name(run_id)
    content = _written.get(path.absolute())
    if content is not None and not path.exists():
        replace_bytes(path, content)


def end_manifest(
    folder: Path, run_id: str, attempt: int, missing_groups: int, ledger_lines: Mapping[int, int] | None = None
) -> None:
    """Note in the manifest, if there is one, when an attempt closed its dump and what it lacks. Never raises.

    Args:
        ledger_lines: how many lines each attempt wrote to the ledger, also those that were killed before they could
            note it, so that readers notice missing files.
    """
    facts = {number: Attempt(ledger_lines=lines).as_json() for number, lines in (ledger_lines or {}).items()}
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    # Zero missing groups are noted, too.
    closed = Attempt(ended=ended).as_json() | {"missing_groups": missing_groups}
    facts[attempt] = facts.get(attempt, {}) | closed
    _complete_manifest(folder, run_id, facts)


def note_in_manifest(folder: Path, run_id: str, attempt: int, facts: Attempt) -> None:
    """Add facts about an attempt to the manifest, if there is one. Never raises."""
    _complete_manifest(folder, run_id, {attempt: facts.as_json()})


def _complete_manifest(folder: Path, run_id: str, facts: Mapping[int, Mapping[str, Any]]) -> None:
    """Add facts about attempts to the entries of these attempts."""
    path = folder / manifest_name(run_id)
    try:
        manifest = _load(path)
        # Changed in place. The top level is an attempt as well: the last one.
        for start in (manifest, *manifest["attempts"]):
            start |= facts.get(start.get("attempt"), {})
        try:
            _replace(path, as_json_bytes(manifest))
        except OSError:  # a full disk has room for a shorter one in place of the old one
            _overwrite(path, json.dumps(manifest).encode() + b"\n")
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        logger.warning("{} could not be updated ({})", path, error)


def _replace(path: Path, content: bytes) -> None:
    replace_bytes(path, content)
    _written[path.absolute()] = content


def as_json_bytes(content: Any) -> bytes:
    """Return what `rg_env.dump.run_file` and this module write; values that JSON cannot represent as text."""
    return json.dumps(content, indent=2, default=str).encode() + b"\n"


def _overwrite(path: Path, content: bytes) -> None:
    # Only what is not longer needs no further block of the disk.
    if len(content) > path.stat().st_size:
        raise OSError(errno.ENOSPC, "no room in the old manifest")
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()


class State(StrEnum):
    """How the last attempt of a run ended."""

    ENDED = "ended"
    RUNNING = "running"
    KILLED = "killed"
    UNKNOWN = ""
    """There is no manifest, or the lock cannot be asked."""


def state_of(folders: Iterable[Path], run_id: str, manifest: Manifest | None) -> State:
    """Return how the last attempt of a run in these folders ended, as its manifest and its lock say."""
    held = [is_held(folder, run_id) for folder in folders]
    # A run is written in one of its folders, so that one lock is enough.
    if any(held):
        return State.RUNNING
    if manifest is None or not manifest.attempts:
        return State.UNKNOWN
    if manifest.attempts[-1].ended:
        return State.ENDED
    if None in held:
        return State.UNKNOWN
    return State.KILLED


def merge_manifests(manifests: Sequence[Manifest]) -> Manifest | None:
    """Merge the manifests of a run that went on in another folder: the last attempt's, with the attempts of all."""
    if not manifests:
        return None
    if len(manifests) == 1:
        return manifests[0]
    last = max(manifests, key=_last_attempt)
    # The folder of the last attempt may lack the earlier ones, which were written elsewhere.
    entries: dict[int, Attempt] = {}
    for manifest in manifests:
        for entry in manifest.attempts:
            number = entry.attempt or 0
            # A copy that was made while the run was being written does not know how the attempt ended, nor how many
            # lines it has, which the next attempt notes of one that was killed.
            if number not in entries or _noted(entry) > _noted(entries[number]):
                entries[number] = entry
    return replace(last, attempts=[entries[number] for number in sorted(entries)])


def _noted(entry: Attempt) -> tuple[bool, bool]:
    return bool(entry.ended), entry.ledger_lines is not None


def _last_attempt(manifest: Manifest) -> tuple[int, tuple[bool, bool]]:
    last = max((entry.attempt or 0 for entry in manifest.attempts), default=0)
    return last, _noted(manifest)


def read_manifest(folder: Path, run_id: str) -> Manifest | None:
    """Return the manifest of a run, or None if it is missing or corrupt."""
    try:
        content = _load(folder / manifest_name(run_id))
    except (OSError, ValueError, RecursionError):
        return None
    return Manifest.read(content) if isinstance(content, dict) else None


def _load(path: Path) -> Any:
    with open_regular(path) as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES} bytes")
    return json.loads(content)


@cache
def _versions() -> dict[str, str]:
    """Versions of the installed packages that affect a run, read without importing them."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions
