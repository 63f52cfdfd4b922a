"""The runs in folders and files, and which attempts of a run count.

A run's files are listed once each, by kind, then in the order of writing: of several forms of a file the one with the
most whole records. Files are identified by their names; for a file with any other name, the first line decides whether
it is a ledger. What happened is read from the lines; the manifest only says how the run was started and ended.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path, PurePath
from typing import Any

from rg_env.dump.files import (
    PREFIX,
    ZSTD,
    DumpFile,
    is_held,
    lines_in,
    list_files,
    manifest_name,
    open_lines,
    open_regular,
    parse_name,
    whole_lines,
)
from rg_env.dump.manifest import read_manifest
from rg_env.dump.schema import TEXT_KINDS, FileKind, GroupFacts, Phase
from rg_env.errors import DumpError
from rg_env.output import counted, visible

_LATER_ATTEMPT = re.compile(rb'"attempt":\s*(?!1\D)')
"""In a line, whose texts have their quotes escaped, and therefore no such key."""

_BELOW_SHOWN = 10
"""How many folders with dumps an error names."""

IsReplaced = Callable[[str, int | None, int | None, int], bool]
"""Whether what an attempt (last) recorded of a phase, a step and a call does not count: a later attempt replaced it."""


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

    def files_for_frames(self, *, texts: bool) -> list[DumpFile]:
        """The files to read for frames: the ledger, or the texts if requested or if there is no ledger."""
        return self.files_of(FileKind.LEDGER) if self.has_ledger and not texts else self.files_of(*TEXT_KINDS)

    def missing_files(self, kinds: Iterable[FileKind]) -> Iterator[str]:
        """A line for each gap in the numbers of the files of these kinds."""
        for kind in kinds:
            numbers = sorted({file.batch for file in self.files_of(kind) if parse_name(file.path)})
            for before, number in zip([-1, *numbers], numbers, strict=False):
                if number - before == 2:
                    yield f"file {number - 1:04d} of {kind} of run {self.run_id} is missing"
                elif number - before > 2:
                    yield f"files {before + 1:04d} to {number - 1:04d} of {kind} of run {self.run_id} are missing"

    def how_it_ended(self) -> Iterator[str]:
        """What the manifest says about groups that are missing, a line each. Without a manifest nothing is known."""
        if missing := missing_groups(self.manifest):
            yield f"{counted(missing, 'group')} of run {self.run_id} could not be written, as its manifest says"
        state = state_of(self.files[0].path.parent, self.run_id, self.manifest)
        if state == "running":
            yield f"run {self.run_id} is being written now"
        elif state == "killed":
            yield f"run {self.run_id} has no regular end: it was killed"

    def is_replaced(self) -> IsReplaced:
        """What later attempts have replaced.

        In training, all steps from the first one that they trained again, even if they did not get as far. Where there
        are no steps, as in evaluations of a model, the questions that they asked again: a question is a call.
        """
        if not any(map(_has_later_attempt, self.files_for_frames(texts=False))):
            return lambda phase, step, call, attempt: False
        first: dict[int, int] = {}
        last: dict[tuple[str, int], int] = {}
        asked: dict[tuple[str, int], int] = {}
        for file in self.files_for_frames(texts=False):
            for group in (line.record for line in lines_in(file)):
                if not isinstance(group, GroupFacts):
                    continue
                if group.step is None:
                    asked[group.phase, group.call] = max(group.attempt, asked.get((group.phase, group.call), 0))
                    continue
                last[group.phase, group.step] = max(group.attempt, last.get((group.phase, group.step), 0))
                if group.phase is Phase.TRAIN:
                    first[group.attempt] = min(group.step, first.get(group.attempt, group.step))

        def is_replaced(phase: str, step: int | None, call: int | None, attempt: int) -> bool:
            if step is None:
                return call is not None and attempt < asked.get((phase, call), attempt)
            abandoned = any(later > attempt and step >= start for later, start in first.items())
            return abandoned or attempt < last.get((phase, step), attempt)

        return is_replaced


def _has_later_attempt(file: DumpFile) -> bool:
    with suppress(OSError), open_lines(file.path) as stream:  # what is damaged is reported by the reader of the lines
        return any(_LATER_ATTEMPT.search(block) for block in whole_lines(stream))
    return False


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
    listed = [file for path in map(Path, paths) for file in _find(path)]
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


def _find(path: Path) -> Sequence[DumpFile]:
    try:
        if path.is_dir():
            if files := list_files(path):
                return files
            below = dump_folders(path)
            shown = ", ".join(map(str, below[:_BELOW_SHOWN]))
            more = f" and {len(below) - _BELOW_SHOWN} more" if len(below) > _BELOW_SHOWN else ""
            hint = f"; below it there are dumps in {shown}{more}" if below else ""
            raise DumpError(f"no dump in {path}: its files would be named {PREFIX}_*.jsonl{hint}")
        with open_regular(path):
            pass
    except OSError as error:
        raise DumpError(f"{path} cannot be read ({error.strerror}): name a dump folder or a .jsonl file") from None
    return [parse_name(path) or _free_name(path)]


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


def _free_name(path: Path) -> DumpFile:
    """A file of any name: its first record says which run and which kind it is."""
    file = DumpFile(path, FileKind.LEDGER, path.stem, 0, part=False, compressed=path.suffix == ZSTD)
    for kind in (FileKind.LEDGER, FileKind.ROLLOUTS):
        with suppress(DumpError):  # reported by the reader of the file
            first = next(lines_in(replace(file, kind=kind)), None)
            if first is not None and isinstance(first.record, GroupFacts):
                return replace(file, kind=kind, run_id=first.record.run_id)
    return replace(file, kind=FileKind.ROLLOUTS)
