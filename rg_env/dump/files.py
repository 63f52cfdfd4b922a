"""The names of files in a dump folder, in Atropos' pattern, and a check that the folder is writable.

A name has kind, run and number, from 0 for each kind. `.part` marks the file being filled, `.zst` a compressed one.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rg_env.dump.schema import FileKind
from rg_env.errors import DumpError

PREFIX = "reasoning_gym_environment"
PART = ".part"
ZSTD = ".zst"
_NAME = re.compile(
    rf"{PREFIX}_(?P<kind>{'|'.join(sorted(FileKind, key=len, reverse=True))})"
    r"_(?P<run_id>.+)_(?P<batch>\d{4,})\.jsonl(?P<ending>\.part|\.zst)?"
)


@dataclass(frozen=True, slots=True)
class DumpFile:
    """A dump file, as described by its name. A running writer may have renamed it since."""

    path: Path
    kind: FileKind
    run_id: str
    batch: int
    part: bool
    compressed: bool = False


def batch_name(kind: FileKind, run_id: str, batch: int) -> str:
    """The name of a finished batch.

    >>> batch_name(FileKind.FAILED, "20261121-053012-ab12", 7)
    'reasoning_gym_environment_FAILED_rollouts_20261121-053012-ab12_0007.jsonl'
    """
    return f"{PREFIX}_{kind}_{run_id}_{batch:04d}.jsonl"


def manifest_name(run_id: str) -> str:
    return f"{PREFIX}_manifest_{run_id}.json"


def lock_name(run_id: str) -> str:
    return f"{PREFIX}_lock_{run_id}"


def parse_name(path: Path) -> DumpFile | None:
    """The file that the name describes, or None if it is not a batch of a dump."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        return None
    ending, run_id = match["ending"], match["run_id"].encode("utf-8", "replace").decode()
    return DumpFile(path, FileKind(match["kind"]), run_id, int(match["batch"]), ending == PART, ending == ZSTD)


def list_files(folder: Path, run_id: str | None = None, *, every_form: bool = False) -> list[DumpFile]:
    """The files in a folder, of one run or of all, ordered by run, kind and number; several forms of one next to each
    other: with `every_form` also the compressed one of a file that is there uncompressed.

    Raises:
        OSError: the folder cannot be listed.
    """
    paths = _listing(folder)
    found = [file for path in paths if (file := parse_name(path)) and run_id in (None, file.run_id)]
    files = [file for file in found if every_form or not (file.compressed and file.path.with_suffix("") in paths)]
    return sorted(files, key=lambda file: (file.run_id, file.kind, file.batch))


def _listing(folder: Path) -> set[Path]:
    """The paths in a folder. During a rename a listing may show a file twice or not at all, so it is repeated."""
    paths = set(folder.iterdir())
    for _ in range(10):
        before, paths = paths, set(folder.iterdir())
        if paths == before:
            break
    return paths


def free_number(folder: Path, kind: FileKind, run_id: str) -> int:
    """The number after the last batch, finished or not, of this kind and run in the folder."""
    return max((file.batch + 1 for file in list_files(folder, run_id) if file.kind is kind), default=0)


def is_taken(path: Path) -> bool:
    """Whether a finished batch has this name, plain or compressed."""
    return path.exists() or path.with_name(path.name + ZSTD).exists()


def try_folder(folder: Path) -> None:
    """Try whether the folder can be created and written, without creating it.

    Creating and removing it would break another run that starts at the same moment in the same new parent folder.

    Raises:
        OSError: it cannot.
    """
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    with tempfile.TemporaryFile(dir=nearest):
        pass


def check_folder(folder: Path) -> None:
    """Create the folder if necessary and check that it is writable.

    Raises:
        DumpError: it cannot be created or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise DumpError(
            f"dump folder {folder} cannot be written ({error.strerror}): "
            "choose another dump_dir, or fix its permissions"
        ) from None
