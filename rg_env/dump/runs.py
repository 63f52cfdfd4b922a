"""The runs in folders and files, and which attempts of a run count.

A run's files are listed once each, by kind, then in the order of writing: of several forms of a file the one with the
most whole records. Files are identified by their names; for a file with any other name, the first line decides whether
it is a ledger. What happened is read from the lines; the manifest only says how the run was started and ended.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path, PurePath
from typing import Any

from rg_env.dump.files import (
    PREFIX,
    DumpFile,
    is_held,
    lines_in,
    list_files,
    manifest_name,
    open_regular,
    parse_name,
)
from rg_env.dump.manifest import read_manifest
from rg_env.dump.schema import TEXT_KINDS, FileKind, GroupFacts, Phase, Record
from rg_env.errors import DumpError
from rg_env.output import counted, visible

_BELOW_SHOWN = 10
"""How many folders with dumps an error names."""


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

    @property
    def has_ledger(self) -> bool:
        return bool(self.files_of(FileKind.LEDGER))

    def kinds_for_frames(self, *, texts: bool) -> tuple[FileKind, ...]:
        """The files to read for frames: the ledger, or the texts if requested or if there is no ledger."""
        return (FileKind.LEDGER,) if self.has_ledger and not texts else TEXT_KINDS

    def missing_files(self, kinds: Iterable[FileKind]) -> Iterator[str]:
        """A line for each gap in the numbers of the files of these kinds."""
        for kind in kinds:
            numbers = sorted({file.batch for file in self.files_of(kind) if parse_name(file.path)})
            for before, number in zip([-1, *numbers], numbers, strict=False):
                if number - before == 2:
                    yield f"file {number - 1:04d} of {kind} of run {self.run_id} is missing"
                elif number - before > 2:
                    yield f"files {before + 1:04d} to {number - 1:04d} of {kind} of run {self.run_id} are missing"

    def how_it_ended(self) -> dict[str, str]:
        """What the manifest says about the end, if that was not regular: `groups_missing`, and `no_regular_end` or
        `running`, each with a line for people. Without a manifest nothing is known.
        """
        ends = {}
        if missing := missing_groups(self.manifest):
            ends["groups_missing"] = (
                f"{counted(missing, 'group')} of run {self.run_id} could not be written, as its manifest says"
            )
        state = state_of(self.files[0].path.parent, self.run_id, self.manifest)
        if state == "running":
            ends[state] = f"run {self.run_id} is being written now"
        elif state == "killed":
            ends["no_regular_end"] = f"run {self.run_id} has no regular end: it was killed"
        return ends

    def replaced(self) -> Callable[[Record], bool]:
        """A function that says whether a record does not count, because a later attempt replaced it.

        In training a later attempt replaces all steps from the first one that it trained again, even if it did not get
        as far. Where there are no steps, as in evaluations of a model, it replaces the questions that it asked again.
        """
        first: dict[int, int] = {}
        last: dict[tuple[str, int | None, int], int] = {}
        for file in self.files_of(*self.kinds_for_frames(texts=False)):
            for place in (line.record for line in lines_in(file, _Place)):
                if isinstance(place, _Place):
                    last[_unit(place)] = max(place.attempt, last.get(_unit(place), 0))
                    if place.step is not None and place.phase is Phase.TRAIN:
                        first[place.attempt] = min(place.step, first.get(place.attempt, place.step))
        if {*last.values()} <= {1}:
            return lambda record: False

        def is_replaced(record: Any) -> bool:
            step, attempt = record.step, record.attempt
            abandoned = step is not None and any(later > attempt and step >= start for later, start in first.items())
            return abandoned or attempt < last.get(_unit(record), attempt)

        return is_replaced


class _Place(Record, frozen=True, kw_only=True):
    """Where in its run the line of a group is."""

    attempt: int = 1
    phase: Phase
    step: int | None = None
    call: int = 0


def _unit(record: Any) -> tuple[str, int | None, int]:
    """What is tried again as a whole: a step of a phase; where there are no steps, a question, which is a call."""
    phase, call = getattr(record, "phase", Phase.TRAIN), getattr(record, "call", 0)
    return phase, record.step, call if record.step is None else 0


def attempts_of(manifest: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """What a manifest says about each attempt; nothing without one."""
    attempts = (manifest or {}).get("attempts")
    return [entry for entry in attempts if isinstance(entry, dict)] if isinstance(attempts, list) else []


def missing_groups(manifest: Mapping[str, Any] | None) -> int:
    """The number of groups that could not be written."""
    counts = [attempt.get("missing_groups") for attempt in attempts_of(manifest)]
    return sum(count for count in counts if isinstance(count, int))


def state_of(folder: Path, run_id: str, manifest: Mapping[str, Any] | None) -> str:
    """How the last attempt of a run ended: `ended`, `running` or `killed`; "" if that is unknown."""
    attempts = attempts_of(manifest)
    if not attempts:
        return ""
    return "ended" if attempts[-1].get("ended") else "running" if is_held(folder, run_id) else "killed"


def run_names(runs: Iterable[Run]) -> dict[str, str]:
    """A short name of each run by run id: the model if that tells the runs apart, else the folder, else both, else the
    run id. A single run has model and folder. Names are safe to print.
    """
    runs = list(runs)
    both = [f"{run.model} ({run.folder})" if run.model else run.run_id for run in runs]
    forms = [both] if len(runs) == 1 else [[run.model for run in runs], [run.folder for run in runs], both]
    ids = [run.run_id for run in runs]
    names = next((form for form in forms if len(set(form)) == len(form) and all(form)), ids)
    return {run_id: visible(name, one_line=True) for run_id, name in zip(ids, names, strict=True)}


def find_runs(paths: Sequence[str | Path]) -> tuple[Run, ...]:
    """The runs in folders and files, in the order of these, in a folder by run id.

    Raises:
        DumpError: a path does not exist or has no dump.
    """
    if not paths:
        raise DumpError("no dump folder or file was given")
    listed = [file for path in map(Path, paths) for file in _files_at(path)]
    place = {run_id: number for number, run_id in enumerate(dict.fromkeys(file.run_id for file in listed))}
    files = {(os.path.realpath(file.path.parent), file.path.name): file for file in listed}
    kinds = list(FileKind)
    chosen, copies = _without_copies(list(files.values()))
    in_order = sorted(chosen, key=lambda file: (place[file.run_id], kinds.index(file.kind), file.batch))
    runs = []
    for run_id, group in groupby(in_order, key=lambda file: file.run_id):
        of_run = tuple(group)
        manifest = read_manifest(of_run[0].path.parent, run_id)
        runs.append(Run(run_id, of_run, manifest, tuple(copies.get(run_id, ()))))
    return tuple(runs)


def _without_copies(files: Sequence[DumpFile]) -> tuple[list[DumpFile], dict[str, list[tuple[Path, str]]]]:
    """One file for each run, kind and number, the one with the most whole records: of several forms (`.part`, plain,
    `.zst`), which copying a running dump leaves, and of copies in other folders. Second, `Run.copies` by run id.
    """
    chosen: list[DumpFile] = []
    copies: dict[str, list[tuple[Path, str]]] = {}
    key = attrgetter("run_id", "kind", "batch")
    for (run_id, *_), group in groupby(sorted(files, key=key), key=key):
        forms = list(group)
        records = {file.path: _records_in(file) for file in forms} if len(forms) > 1 else {}
        kept: list[DumpFile] = []
        for file in sorted(forms, key=lambda file: (-len(records.get(file.path, ())), file.is_open)):
            path = file.path
            same = [
                other.path
                for other in kept
                if path.parent == other.path.parent or not records[path] or records[path] & records[other.path]
            ]
            if not same:
                kept.append(file)
            elif path.exists():  # else it was renamed by a running writer
                counts = f"{len(records[same[0]])} whole records, against {len(records[path])}"
                remark = f"{path} is left out: {same[0]} is the same file with {counts}"
                copies.setdefault(run_id, []).append((path, remark))
        chosen += kept
    return chosen, copies


def _records_in(file: DumpFile) -> frozenset[int]:
    """A hash of each line that is a record; none if the file cannot be read, which the reader of its lines reports."""
    with suppress(DumpError):
        return frozenset(hash(line.raw.rstrip()) for line in lines_in(file) if line.record is not None)
    return frozenset()


def _files_at(path: Path) -> Sequence[DumpFile]:
    try:
        if path.is_dir():
            if files := list_files(path):
                return files
            below = dump_folders(path)
            shown = ", ".join(map(str, below[:_BELOW_SHOWN]))
            others = f" and {len(below) - _BELOW_SHOWN} more" if len(below) > _BELOW_SHOWN else ""
            hint = f"; below it there are dumps in {shown}{others}" if below else ""
            raise DumpError(f"no dump in {path}: its files would be named {PREFIX}_*.jsonl{hint}")
        with open_regular(path):
            pass
    except OSError as error:
        raise DumpError(f"{path} cannot be read ({error.strerror}): name a dump folder or a .jsonl file") from None
    return [parse_name(path) or _file_of_any_name(path)]


def dump_folders(folder: Path, depth: int = 3) -> list[Path]:
    """The folders with files of a dump in a folder, itself included, at most `depth` levels down, each once: under its
    own name rather than that of a link. Folders that cannot be read are left out.
    """
    seen: set[str] = set()

    def search(folder: Path, depth: int) -> Iterator[Path]:
        if os.path.realpath(folder) in seen:
            return
        seen.add(os.path.realpath(folder))
        paths: list[Path] = []
        with suppress(OSError):
            paths = sorted(folder.iterdir(), key=lambda path: (path.is_symlink(), path.name))
        if any(parse_name(path) or path.name.startswith(manifest_name("").removesuffix(".json")) for path in paths):
            yield folder
        for path in paths if depth else ():
            if path.is_dir():
                yield from search(path, depth - 1)

    return list(search(folder, depth))


def _file_of_any_name(path: Path) -> DumpFile:
    """A file of any name: its first record says which run and which kind it is."""
    file = DumpFile(path, FileKind.LEDGER, path.stem, 0)
    for kind in (FileKind.LEDGER, FileKind.ROLLOUTS):
        with suppress(DumpError):  # reported by the reader of the file
            first = next(lines_in(replace(file, kind=kind)), None)
            if first is not None and isinstance(first.record, GroupFacts):
                return replace(file, kind=kind, run_id=first.record.run_id)
    return replace(file, kind=FileKind.ROLLOUTS)
