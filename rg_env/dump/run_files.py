"""The runs in folders and files: which files there are, and what the manifests say.

A run's files are listed once each, by kind and number. They are identified by their names. What happened is read from
the lines (`rg_env.dump.contents`); the manifests only say how the run was started and ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path, PurePath
from typing import Any

from rg_env.base.errors import DumpError
from rg_env.base.wording import visible
from rg_env.dump.files import PREFIX, DumpFile, list_files, manifest_name, open_regular, parse_name
from rg_env.dump.manifest import Manifest, State, merge_manifests, read_manifest, state_of
from rg_env.dump.schema import TEXT_KINDS, FileKind

_BELOW_SHOWN = 10
"""How many folders with dumps an error names."""


@dataclass(frozen=True, repr=False)
class Run:
    """The files of one run that were found.

    Attributes:
        manifest: what the run was started with; of a run that went on in another folder, what all of its manifests
            contain. None if there is none that can be read.
    """

    run_id: str
    files: tuple[DumpFile, ...]
    manifest: Manifest | None

    def __repr__(self) -> str:
        return f"Run({self.run_id!r}, {len(self.files)} files)"

    def files_of(self, *kinds: FileKind) -> list[DumpFile]:
        """Return the files of these kinds, in the order of writing within each kind."""
        return [file for file in self.files if file.kind in kinds]

    @property
    def noted(self) -> Manifest:
        """The manifest; an empty one if there is none."""
        return self.manifest or Manifest()

    @property
    def model(self) -> str:
        """The model's name, without folders if it is a path on this machine; empty if unknown."""
        path = PurePath(self.noted.model)
        return path.name if path.is_absolute() else self.noted.model

    @property
    def folder(self) -> str:
        """The name that an import was given; else that of the run's folder, see `folder_name`."""
        if self.imported:
            return self.noted.name or folder_name(self.files[0].path.parent)
        return folder_name(self.files[0].path.parent)

    @property
    def imported(self) -> Mapping[str, Any]:
        """What was noted when the run was imported from another program; empty if it was not."""
        return self.noted.imported

    @property
    def never_saved(self) -> str:
        """What the program of an imported run keeps out of its files, in a sentence; "" if that is nothing."""
        return visible(str(self.imported.get("never_saved") or ""), one_line=True)

    @property
    def has_ledger(self) -> bool:
        return bool(self.files_of(FileKind.LEDGER))

    def kinds_for_frames(self, *, texts: bool) -> tuple[FileKind, ...]:
        """Return the files to read for frames: the ledger, or the texts if requested or if there is no ledger."""
        if self.has_ledger and not texts:
            return (FileKind.LEDGER,)
        return TEXT_KINDS

    def state(self) -> State:
        """Return how the last attempt ended."""
        return state_of(self.folders, self.run_id, self.manifest)

    @property
    def folders(self) -> list[Path]:
        """The folders of the files."""
        return list(dict.fromkeys(file.path.parent for file in self.files))


def run_names(runs: Iterable[Run]) -> dict[str, str]:
    """Return a short name of each run by run id: the model if that tells the runs apart, else the folder, else both,
    else the run id. A single run has model and folder. Names are safe to print.
    """
    runs = list(runs)
    both = [_model_and_folder(run) for run in runs]
    choices = [both]
    if len(runs) > 1:
        choices = [[run.model for run in runs], [run.folder for run in runs], both]
    names = [run.run_id for run in runs]
    for labels in choices:
        is_different = len(set(labels)) == len(labels)
        if is_different and all(labels):  # known of every run
            names = labels
            break
    return {run.run_id: visible(name, one_line=True) for run, name in zip(runs, names, strict=True)}


def _model_and_folder(run: Run) -> str:
    if run.model:
        return f"{run.model} ({run.folder})"
    # Nobody chose the id of an import.
    return run.folder if run.imported else run.run_id


def folder_name(folder: Path) -> str:
    """Return the name of a run's folder, which is the parent of one called `dumps`."""
    folder = folder.resolve()
    if folder.name == "dumps":
        return folder.parent.name
    return folder.name


def find_runs(paths: Sequence[str | Path]) -> tuple[Run, ...]:
    """Return the runs in folders and files, in the order of these, in a folder by run id.

    Raises:
        DumpError: a path does not exist or has no dump.
    """
    if not paths:
        raise DumpError("no dump folder or file was given")
    kinds = list(FileKind)
    numbers: dict[str, int] = {}  # of the runs, in the order of arguments
    # A folder that is named twice, or by a link, is the same files. Of copies, the order of arguments decides nothing.
    files: dict[str, DumpFile] = {}
    for name in paths:
        for file in _files_at(Path(name)):
            numbers.setdefault(file.run_id, len(numbers))
            files[os.path.realpath(file.path)] = file

    def order(item: tuple[str, DumpFile]) -> tuple[int, int, int, str]:
        path, file = item
        return numbers[file.run_id], kinds.index(file.kind), file.batch, path

    # While a file gets its final name it may be listed under both: the old one is left out.
    in_order = [file for _, file in sorted(files.items(), key=order) if not _is_renamed(file)]
    runs = []
    # Sorted by run: each run is one piece.
    for run_id, group in groupby(in_order, key=lambda file: file.run_id):
        of_run = tuple(group)
        manifests = []
        for folder in dict.fromkeys(file.path.parent for file in of_run):
            if manifest := read_manifest(folder, run_id):
                manifests.append(manifest)
        runs.append(Run(run_id, of_run, merge_manifests(manifests)))
    return tuple(runs)


def _is_renamed(file: DumpFile) -> bool:
    """Return whether a running writer has given the file its final name, under which it is listed, too."""
    return file.is_open and not os.path.exists(file.path) and os.path.exists(file.path.with_suffix(""))


def _files_at(path: Path) -> Sequence[DumpFile]:
    try:
        if path.is_dir():
            if files := list_files(path):
                return files
            why = f"no dump in {path}: its files would be named {PREFIX}_*.jsonl"
            below = dump_folders(path)
            if path in below:  # there is a manifest
                below.remove(path)
                why = f"the run in {path} has recorded nothing"
            if unread := _unread_endings(path):
                why = f"the files of the dump in {path} end in {unread}, which is not read: unpack them"
            shown = ", ".join(map(str, below[:_BELOW_SHOWN]))
            others = ""
            if len(below) > _BELOW_SHOWN:
                others = f" and {len(below) - _BELOW_SHOWN} more"
            hint = ""
            if below:
                hint = f"; below it there are dumps in {shown}{others}"
            raise DumpError(f"{why}{hint}")
        # Called for its exception: the file is missing, not a regular one, or cannot be read.
        with open_regular(path):
            pass
    except OSError as error:
        raise DumpError(
            f"{path} cannot be read ({error.strerror}): name a dump folder or a .jsonl file; `rg-env runs` lists them"
        ) from None
    file = parse_name(path)
    if file is None:
        raise DumpError(f"{path} is not a file of a dump: its name would be {PREFIX}_…_RUN_NUMBER.jsonl")
    return [file]


def _unread_endings(folder: Path) -> str:
    """Return the endings of files that would be those of a dump without them, such as `.jsonl.xz`."""
    endings = {f".jsonl{path.suffix}" for path in folder.iterdir() if parse_name(path.with_suffix(""))}
    return " and ".join(sorted(endings))


def _is_of_dump(path: Path) -> bool:
    """Return whether a path has the name of a dump's file or manifest."""
    return bool(parse_name(path)) or path.name.startswith(manifest_name("").removesuffix(".json"))


def dump_folders(folder: Path, depth: int = 3) -> list[Path]:
    """Return the folders with files of a dump in a folder, itself included, at most `depth` levels down, each once:
    under its own name rather than that of a link. Folders that cannot be read are left out.
    """
    seen: set[str] = set()

    def search(folder: Path, depth: int) -> Iterator[Path]:
        if os.path.realpath(folder) in seen:
            return
        seen.add(os.path.realpath(folder))
        paths: list[Path] = []
        with suppress(OSError):
            # Links last: what they lead to has been seen under its own name by then.
            paths = sorted(folder.iterdir(), key=lambda path: (path.is_symlink(), path.name))
        if any(map(_is_of_dump, paths)):
            yield folder
        if not depth:
            return
        for path in paths:
            if os.path.isdir(path):
                yield from search(path, depth - 1)

    return list(search(folder, depth))
