"""The runs in folders and files.

Invariant: a run's files are listed once each, by kind, then in the order of writing. Files are identified by their
names; for a file with any other name, the first line decides whether it is a ledger.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path, PurePath
from typing import Any

from rg_env.dump.files import PREFIX, ZSTD, DumpFile, list_files, parse_name
from rg_env.dump.manifest import read_manifest
from rg_env.dump.open_file import open_regular
from rg_env.dump.read.chunks import parts_of
from rg_env.dump.read.lines import lines_in
from rg_env.dump.schema import FileKind
from rg_env.errors import DumpError
from rg_env.sanitize import visible

_LATER_ATTEMPT = re.compile(rb'"attempt":\s*(?!1\D)')
"""In a line, whose texts have their quotes escaped, and therefore no such key."""
_AT_ONCE = 1 << 18
"""Bytes in which it is looked for at a time."""


@dataclass(frozen=True, repr=False)
class Run:
    """The files of one run that were found.

    Attributes:
        manifest: what the run was started with, or None.
        copies: files that are left out because another one is the same file, each with a line that says so.
    """

    run_id: str
    files: tuple[DumpFile, ...]
    manifest: dict[str, Any] | None
    copies: tuple[tuple[Path, str], ...] = ()

    def __repr__(self) -> str:
        return f"Run({self.run_id!r}, {len(self.files)} files)"

    def files_of(self, *kinds: FileKind) -> list[DumpFile]:
        """The files of these kinds, in the order of writing within each kind."""
        return [file for file in self.files if file.kind in kinds]

    @property
    def model(self) -> str:
        """The model's name, without folders if it is a path on this machine; empty if unknown."""
        name = str((self.manifest or {}).get("model") or "")
        return PurePath(name).name if PurePath(name).is_absolute() else name

    @property
    def folder(self) -> str:
        """The name of the run's folder; that of its parent if dumps are in a folder of that name."""
        folder = self.files[0].path.resolve().parent
        return folder.parent.name if folder.name == "dumps" else folder.name

    def may_have_attempts(self) -> bool:
        """False if no line names a later attempt than the first."""
        parts = (part for file in self.files_for_frames(texts=False) for part in parts_of(file, _AT_ONCE))
        return any(_LATER_ATTEMPT.search(part.data) for part in parts)

    @property
    def has_ledger(self) -> bool:
        return bool(self.files_of(FileKind.LEDGER))

    def files_for_frames(self, *, texts: bool) -> list[DumpFile]:
        """The files to read for frames: the ledger, or the texts if requested or if there is no ledger."""
        if self.has_ledger and not texts:
            return self.files_of(FileKind.LEDGER)
        return self.files_of(*(kind for kind in FileKind if kind.holds_text))


def run_names(runs: Iterable[Run]) -> dict[str, str]:
    """A short name of each run by run id: the model, with the folder and then the run id as far as needed to tell the
    runs apart. A single run has model and folder. Without a model, the run id. Names are safe to print.
    """
    runs = list(runs)
    forms = {run.run_id: _names(run) for run in runs}
    if len(runs) == 1:
        return {run_id: found[:2][-1] for run_id, found in forms.items()}
    taken = [Counter(found[min(k, len(found) - 1)] for found in forms.values()) for k in range(3)]
    return {
        run_id: next((name for name, times in zip(found, taken, strict=False) if times[name] == 1), found[-1])
        for run_id, found in forms.items()
    }


def _names(run: Run) -> list[str]:
    if not run.model:
        return [run.run_id]
    model, folder = (visible(text, one_line=True) for text in (run.model, run.folder))
    return [model, f"{model} ({folder})", f"{model} ({folder}, {run.run_id})"]


def find_runs(paths: Sequence[str | Path]) -> tuple[Run, ...]:
    """The runs in folders and files, ordered by run id.

    Raises:
        DumpError: no path, a path does not exist, or it has no dump.
    """
    if not paths:
        raise DumpError("no dump folder or file was given")
    files: dict[Path, DumpFile] = {}
    for path in map(Path, paths):
        files |= {_real(file.path.parent) / file.path.name: file for file in _find(path)}
    kinds = list(FileKind)
    chosen, copies = _without_copies(list(files.values()))
    in_order = sorted(_told_apart(chosen), key=lambda file: (file.run_id, kinds.index(file.kind), file.batch))
    runs = []
    for run_id, found in groupby(in_order, key=lambda file: file.run_id):
        mine = tuple(found)
        manifest = read_manifest(mine[0].path.parent, run_id)
        runs.append(Run(run_id, mine, manifest, tuple(copies.get(run_id, ()))))
    return tuple(runs)


def _without_copies(files: Sequence[DumpFile]) -> tuple[list[DumpFile], dict[str, list[tuple[Path, str]]]]:
    """One file for each run, kind and number: of several forms (`.part`, plain, `.zst`), which copying a running dump
    leaves, and of copies in other folders, the one with the most whole records.

    Returns:
        the files, and `Run.copies` by run id.
    """
    chosen: list[DumpFile] = []
    copies: dict[str, list[tuple[Path, str]]] = {}
    key = attrgetter("run_id", "kind", "batch")
    for (run_id, *_), group in groupby(sorted(files, key=key), key=key):
        forms = list(group)
        if len(forms) == 1:
            chosen += forms
            continue
        kept: list[_Content] = []
        for content in sorted(map(_read_content, forms), key=lambda form: (-form.records, form.file.part)):
            whole = next((form for form in kept if form.is_same_file(content)), None)
            if whole is None:
                kept.append(content)
            elif content.file.path.exists():  # else it was renamed by a running writer
                remark = (
                    f"{content.file.path} is left out: {whole.file.path} is the same file with {whole.records} whole "
                    f"records, against {content.records}"
                )
                copies.setdefault(run_id, []).append((content.file.path, remark))
        chosen += [content.file for content in kept]
    return chosen, copies


@dataclass(frozen=True)
class _Content:
    """What a file holds: the number of its records, and a hash of each of its lines."""

    file: DumpFile
    records: int
    lines: frozenset[int]

    def is_same_file(self, other: _Content) -> bool:
        return self.file.path.parent == other.file.path.parent or not other.records or bool(self.lines & other.lines)


def _read_content(file: DumpFile) -> _Content:
    records, lines = 0, set()
    with suppress(DumpError):  # reported by the reader of the file
        for line in lines_in(file):
            records += line.record is not None
            lines |= {hash(line.raw)} if line.raw else set()
    return _Content(file, records, frozenset(lines))


def _told_apart(files: Sequence[DumpFile]) -> list[DumpFile]:
    """The files, with other run ids where files of one name in several folders are of different runs, as Atropos' may
    be: the id of a run without a ledger begins with its folder.
    """
    folders: dict[str, set[Path]] = {}
    for file in files:
        folders.setdefault(file.run_id, set()).add(_real(file.path.parent))
    with_ledger = {file.run_id for file in files if file.kind is FileKind.LEDGER}
    split = {run_id for run_id, found in folders.items() if len(found) > 1} - with_ledger
    names = Counter(folder.name for run_id in split for folder in folders[run_id])
    return [
        replace(file, run_id=f"{_folder_name(file.path, names)}/{file.run_id}") if file.run_id in split else file
        for file in files
    ]


def _folder_name(path: Path, names: Counter[str]) -> str:
    folder = _real(path.parent)
    return folder.name if names[folder.name] == 1 else str(folder)


@lru_cache(maxsize=64)
def _real(folder: Path) -> Path:
    return Path(os.path.realpath(folder))


def _find(path: Path) -> Sequence[DumpFile]:
    try:
        if path.is_dir():
            if found := list_files(path, every_form=True):
                return found
            raise DumpError(_nothing_in(path))
        with open_regular(path):
            pass
    except OSError as error:
        raise DumpError(f"{path} cannot be read ({error.strerror}): name a dump folder or a .jsonl file") from None
    return [parse_name(path) or _free_name(path)]


def _nothing_in(folder: Path) -> str:
    deeper = next((below for below in sorted(folder.iterdir()) if below.is_dir() and list_files(below)), None)
    there = f" did you mean {deeper}?" if deeper else ""
    return f"no dump in {folder}: its files would be named {PREFIX}_*.jsonl.{there}"


def _free_name(path: Path) -> DumpFile:
    file = DumpFile(path, FileKind.LEDGER, path.stem, 0, part=False, compressed=path.suffix == ZSTD)
    with suppress(DumpError):  # reported by the reader of the file
        first = next(lines_in(file), None)
        if first is not None and first.record is not None:
            return file
    return replace(file, kind=FileKind.ROLLOUTS)
