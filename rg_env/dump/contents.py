"""What the files of a run hold and lack: one pass over ids and places, made before anybody iterates.

Invariant: a group counts once, in the ledger and in the texts, wherever and however often its line lies: the first by
kind, number and path counts, whatever the order of arguments. Copies of files, a `.part` beside its finished file and
folders that were named twice are this one rule. A record of training or of a step counts once, too. What a later
attempt replaced is a second rule.

Where lines of the ledger are corrupt or missing, those of groups with a text are made from it, so that a corrupt ledger
costs no more than none. Everything that is missing, corrupt or duplicate is a `Finding`; headline, remarks, report and
`validate` ask for these. What was found does not change while somebody iterates: lines that a running writer adds after
the pass are not read. Memory grows with the number of groups, not with their texts. Not covered: whether a record
contradicts itself, which `validate` checks.
"""

from __future__ import annotations

import gc
import io
import threading
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rg_env.base.wording import counted
from rg_env.dump.files import MAX_LINE, READ_ERRORS, DumpFile, Line, lines_in, open_lines
from rg_env.dump.ledger_parts import PartReader
from rg_env.dump.manifest import State
from rg_env.dump.run_files import Run
from rg_env.dump.schema import (
    TEXT_KINDS,
    BadLineError,
    FileKind,
    GroupFacts,
    GroupRecord,
    LedgerFacts,
    LedgerRecord,
    NewerSchemaError,
    Phase,
    Record,
    TrainedRecord,
    from_line,
    ledger_line,
)

MAX_KEPT = 1000
"""Findings of a kind that are listed one by one."""
_SHOWN = 3
"""How many findings of a kind a summary shows."""


class Place(NamedTuple):
    """A line of a file, by the file's name; line 0: the whole file, or what is named instead of a file."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        if self.line:
            return f"{self.file}, line {self.line}"
        return self.file


class Finding(NamedTuple):
    """One thing that is missing, corrupt or duplicate; `kind` is a key of `KINDS`."""

    kind: str
    place: Place
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


class Kind(NamedTuple):
    """A kind of findings: what to do about one, and the words for many, after their number."""

    advice: str
    many: str


KINDS = {
    "no_ledger": Kind("look for the missing files; statistics are biased", "runs have no ledger"),
    "groups_missing": Kind("they are lost: the disk failed or was full", "runs could not write some groups"),
    "lines_missing": Kind("look for the missing files of the ledger", "attempts of runs lack ledger lines"),
    "from_texts": Kind(
        "look for the missing files of the ledger, or for a copy of the corrupt ones",
        "runs have groups that were counted from the texts",
    ),
    "running": Kind("wait until it has finished", "runs are being written now"),
    "no_regular_end": Kind("resume the run, or keep in mind that it is incomplete", "runs were killed"),
    "corrupt_line": Kind("readers skip it", "corrupt lines were skipped"),
    "duplicate": Kind("it counts once; remove the copy", "duplicate lines; each counts once"),
    "differs": Kind(
        "the first by kind, number and path counts; find out which is right",
        "lines differ from an earlier one with the same id; the first by kind, number and path counts",
    ),
    "no_text": Kind("look for the missing file", "groups have no text, though the ledger names one"),
    "no_ledger_line": Kind(
        "exports have this group, statistics only if lines of the ledger are corrupt or missing",
        "groups in files with texts are not in the ledger",
    ),
    "contradiction": Kind(
        "find out who changed the files; `rg-env dumps rescore` shows what the numbers would be",
        "lines contradict themselves or another line",
    ),
    "unknown_group": Kind("look for the missing file", "trained groups are not in the ledger"),
    "unfinished": Kind("resume the run; readers read it as it is", "files were left behind by killed runs"),
    "gap": Kind(
        "look for the missing files; a folder that was renamed while the run went on has them",
        "ranges of files are missing",
    ),
    "manifest": Kind(
        "restore it from a backup; without it the settings of the run are unknown", "manifests are not JSON objects"
    ),
}
"""The kinds of findings; the last five only from `validate`."""
_NOT_COMPLETE = {"no_ledger", "groups_missing", "lines_missing", "from_texts", "running", "no_regular_end"}


class Findings:
    """Findings in the order in which they were made: of each kind the first `MAX_KEPT`, and the number of all."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.counts: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.kept)

    def add(self, kind: str, place: Place, text: str) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= MAX_KEPT:
            self.kept.append(Finding(kind, place, text))

    def extend(self, other: Findings) -> None:
        """Add all findings of another list."""
        for finding in other.kept:
            self.add(*finding)
        for kind, count in other.counts.items():
            kept = sum(finding.kind == kind for finding in other.kept)
            self.counts[kind] += count - kept

    def summary(self) -> list[str]:
        """Return one line for each finding; of a kind with many, the first few and how many there are."""
        lines = []
        shown: Counter[str] = Counter()
        for finding in self.kept:
            shown[finding.kind] += 1
            if shown[finding.kind] <= _SHOWN:
                lines.append(str(finding))
        for kind, count in self.counts.items():
            if count > _SHOWN:
                more = count - _SHOWN
                lines.append(f"… and {more:,} more: {count:,} {KINDS[kind].many}; `rg-env dumps validate` lists them")
        return lines


class _Known(NamedTuple):
    """Where the line that counts is; of a ledger line, `text` is the kind of file with its text."""

    file: DumpFile
    number: int
    offset: int
    text: str


TextPlace = tuple[str, int, int]
"""Where a text is: the kind of file, its number, and the byte at which its line begins."""

_TEXT_WORDS = ("", *TEXT_KINDS)
_NUMBER, _OFFSET = 32, 48
"""Bits of a line's number and of its offset in what `_Places` notes."""


class _Places:
    """The lines that count, by name, each noted as one number: a run may have millions."""

    def __init__(self) -> None:
        self._files: dict[DumpFile, int] = {}
        self._by_number: list[DumpFile] = []
        self._numbers: dict[Any, int] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._numbers

    def __iter__(self) -> Iterator[Any]:
        return iter(self._numbers)

    def items(self) -> Iterator[tuple[Any, _Known]]:
        for name, noted in self._numbers.items():
            yield name, self._known(noted)

    def get(self, name: object) -> _Known | None:
        noted = self._numbers.get(name)
        if noted is None:
            return None
        return self._known(noted)

    def enter(self, file: DumpFile) -> int:
        """Return the number that stands for a file, to be given to `note`."""
        number = self._files.setdefault(file, len(self._files))
        if number == len(self._by_number):
            self._by_number.append(file)
        return number

    def note(self, name: Any, file: int, number: int, offset: int, text: str) -> bool:
        """Note a line, unless another one has this name: then returns False. The same line again is not another."""
        noted = ((file << _NUMBER | number) << _OFFSET | offset) << 3
        if text:
            noted |= _TEXT_WORDS.index(text)
        return self._numbers.setdefault(name, noted) == noted

    def _known(self, noted: int) -> _Known:
        text, noted = noted & 7, noted >> 3
        offset, noted = noted & (1 << _OFFSET) - 1, noted >> _OFFSET
        return _Known(self._by_number[noted >> _NUMBER], noted & (1 << _NUMBER) - 1, offset, _TEXT_WORDS[text])


class Contents:
    """The contents of a run's files. Each kind of file is read at most once, when it is first asked for."""

    def __init__(self, run: Run, open_file: OpenFile | None = None) -> None:
        self.run = run
        self.state = run.state()
        self._counted_kinds = run.kinds_for_frames(texts=False)  # asked for each line
        self._wrong: dict[FileKind, Findings] = {kind: Findings() for kind in FileKind}
        # By `_room`, then by `_name`: the lines that count.
        self._known: dict[str, _Places] = {}
        self._scanned: set[FileKind] = set()
        # How far each file was read, which may have grown since, and its lines that do not count.
        self._last_lines: dict[Path, int] = {}
        self._left_out: dict[Path, set[int]] = {}
        # How many lines each attempt has of a unit (see `_unit`), from which the next four are made.
        self._units: Counter[tuple[int, str, int | None, int]] = Counter()
        self._lines_of_attempt: Counter[int] = Counter()
        self._attempts: set[int] = set()
        self._first_steps: dict[int, int] = {}
        self._last_attempts: dict[tuple[str, int | None, int], int] = {}
        self._open_file = open_file or OpenFile()
        # Lines of the ledger that were made from texts: see `_recover`.
        self._recovered: dict[str, Line] | None = None
        self._lock = threading.Lock()
        self._recovering = threading.Lock()
        self._names = Counter(file.path.name for file in run.files)
        # By kind and number, as ledger lines name them.
        self._texts_of: dict[tuple[str, int], list[DumpFile]] = {}
        for file in run.files_of(*TEXT_KINDS):
            self._texts_of.setdefault((file.kind, file.batch), []).append(file)

    # -- the pass

    def scan(self, *kinds: FileKind, in_parts: bool = False) -> Iterator[Line]:
        """Read all files of these kinds, note what is in them, and yield the lines that count.

        Args:
            in_parts: of the ledger with `parts`, which takes half the time.
        """
        for kind in kinds:
            reader = PartReader() if in_parts and kind is FileKind.LEDGER else None
            known = self._known.setdefault(_room(kind), _Places())
            for file in self.run.files_of(kind):
                place, number = known.enter(file), 0
                try:
                    for line in lines_in(file, reader=reader):
                        number = line.number
                        if self._note(line, known, place):
                            yield line
                finally:
                    self._last_lines[file.path] = number
            self._scanned.add(kind)
        self._note_attempts()

    def _scan_once(self, *kinds: FileKind) -> None:
        """Read the files of these kinds that have not been read; the loop runs only for what the pass notes."""
        if self._scanned.issuperset(kinds):
            return
        with self._lock, without_collecting():
            # Asked again inside the lock: the second of two threads finds that the first has done it.
            for _ in self.scan(*(kind for kind in kinds if kind not in self._scanned), in_parts=True):
                pass

    def read(self, kind: FileKind, take: Callable[[Line], None]) -> None:
        """Hand over each line of a kind that counts, also what a later attempt replaced (`frames.in_order`): on the
        pass itself, if these files have not been read before.
        """
        with self._lock, without_collecting():
            is_first = kind not in self._scanned
            if is_first:
                for line in self.scan(kind, in_parts=True):
                    take(line)
        if not is_first:
            with without_collecting():
                for line in self._again(kind, in_parts=True):
                    take(line)

    def recovered(self) -> Collection[Line]:
        """Return lines of the ledger that were made from texts; none if nothing is missing."""
        return self._recover().values()

    def _note(self, line: Line, known: _Places, file: int) -> bool:
        """Note a line; whether it counts. `known` are the lines that count so far. Called for each line of a run."""
        record = line.record
        if record is None:
            place = self.place(line.file, line.number)
            self._wrong[line.file.kind].add("corrupt_line", place, f"{line.fault}; skipped")
            # A running writer may complete it before the next reading, which is to yield the same lines.
            self._left_out.setdefault(line.file.path, set()).add(line.number)
            return False
        name = _name(record)
        text = record.text if isinstance(record, LedgerFacts) else ""
        if not known.note(name, file, line.number, line.offset, text):
            self._left_out.setdefault(line.file.path, set()).add(line.number)
            first = known.get(name)
            assert first is not None, "another line has the name"
            self._note_double(line, name, first)
            return False
        if line.file.kind in self._counted_kinds:
            self._units[_unit(record)] += 1
        return True

    def _note_double(self, line: Line, name: Any, first: _Known) -> None:
        """Note a line with the name of an earlier one, and whether the two differ."""
        try:
            # Without the line feed, which the last line of a copy may lack.
            is_same = self._open_file.read(first.file, first.offset).rstrip() == line.raw.rstrip()
        except READ_ERRORS:  # the file has just gone away
            is_same = True
        where = self.place(first.file, first.number)
        record = f"group {name}" if isinstance(name, str) else "this record"
        text = f"{record} again, first in {where}"
        kind = "duplicate"
        if not is_same:
            kind, text = "differs", f"{text}, which differs"
        self._wrong[line.file.kind].add(kind, self.place(line.file, line.number), text)

    def _note_attempts(self) -> None:
        """Note what `_is_replaced` and `_lacking` depend on, once lines are known."""
        self._lines_of_attempt.clear()
        for (attempt, phase, step, call), lines in self._units.items():
            self._lines_of_attempt[attempt] += lines
            self._attempts.add(attempt)
            unit = phase, step, call
            self._last_attempts[unit] = max(attempt, self._last_attempts.get(unit, attempt))
            if step is not None and phase == Phase.TRAIN:
                self._first_steps[attempt] = min(step, self._first_steps.get(attempt, step))

    def _recover(self) -> dict[str, Line]:
        """Return lines of the ledger made from texts, by group id, if it has fewer than the run wrote.

        Not of a run that is being written, whose last lines are whole soon.
        """
        self._scan_once(*self._counted_kinds)
        with self._recovering:
            if self._recovered is not None:
                return self._recovered
            recovered: dict[str, Line] = {}
            is_corrupt = bool(self._wrong[FileKind.LEDGER].counts["corrupt_line"])
            if self.run.has_ledger and self.state is not State.RUNNING and (is_corrupt or self._lacking()):
                known = self._known.get(FileKind.LEDGER, _Places())
                for line in self.lines(*TEXT_KINDS, all_attempts=True):
                    group = line.record
                    if isinstance(group, GroupRecord) and group.group_id not in known:
                        raw = ledger_line(group, line.file.kind)
                        file, record = replace(line.file, kind=FileKind.LEDGER), from_line(LedgerRecord, raw)
                        recovered[group.group_id] = Line(file, line.number, line.offset, raw, record, None)
                        self._units.setdefault(
                            _unit(group), 0
                        )  # its attempt is known, and has no line of it in the ledger
            self._note_attempts()
            self._recovered = recovered
            return recovered

    def place(self, file: DumpFile, number: int = 0) -> Place:
        """Return a place by the file's name, or by its path if the run has several files of that name."""
        name = file.path.name
        if self._names[name] != 1:
            name = str(file.path)
        return Place(name, number)

    # -- what counts

    def lines(self, *kinds: FileKind, all_attempts: bool) -> Iterator[Line]:
        """Yield the lines of files of these kinds that count, each of which is a record.

        Args:
            all_attempts: also those that a later attempt replaced.
        """
        self._scan_once(*kinds)
        # Whether a line is replaced can be said only after all lines of all attempts are known.
        recovered: dict[str, Line] = {}
        if FileKind.LEDGER in kinds or not all_attempts:
            recovered = self._recover()
        check_attempts = not all_attempts and self.has_attempts
        for kind in kinds:
            if kind is FileKind.LEDGER:
                for line in recovered.values():
                    if not (check_attempts and self._is_replaced(line.record)):
                        yield line
            for line in self._again(kind):
                if not (check_attempts and self._is_replaced(line.record)):
                    yield line

    def _again(self, *kinds: FileKind, in_parts: bool = False) -> Iterator[Line]:
        """Yield the lines that the pass over these kinds of files has yielded; `in_parts` as for `scan`."""
        reader = PartReader() if in_parts else None
        for file in self.run.files_of(*kinds):
            left_out = self._left_out.get(file.path, ())
            last = self._last_lines.get(file.path, 0)
            if not last:
                continue
            for line in lines_in(file, reader=reader if file.kind is FileKind.LEDGER else None):
                # The file of a running writer has grown since the pass: nothing is known of those lines.
                if line.number > last:
                    break
                if line.record is not None and line.number not in left_out:
                    yield line

    def _is_replaced(self, record: Any) -> bool:
        """Return whether a record does not count, because a later attempt replaced it.

        In training a later attempt replaces all steps from the first one that it trained again, even if it did not get
        as far. Where there are no steps, as in evaluations of a model, it replaces the questions that it asked again.
        """
        step, attempt = record.step, record.attempt
        if step is not None:
            for later, start in self._first_steps.items():
                if later > attempt and step >= start:
                    return True
        return bool(attempt < self._last_attempts.get(_unit(record)[1:], attempt))

    def lines_of(self, group_ids: Collection[str]) -> Iterator[Line]:
        """Yield the lines that count of these groups, in the order of `lines`: each is read at its place."""
        self._scan_once(*self._counted_kinds)
        recovered = self._recover()
        for group_id in recovered.keys() & group_ids:
            yield recovered[group_id]
        known = self._known.get(_room(self._counted_kinds[0]), _Places())
        places = []
        for group_id in group_ids:
            if place := known.get(group_id):
                places.append((place.file.batch, place.offset, group_id, place))
        for _, offset, group_id, place in sorted(places):
            line = self._line_at(place.file, offset, group_id, place.number)
            if line is not None:
                yield line

    def _line_at(self, file: DumpFile, offset: int, group_id: str, number: int = 0) -> Line | None:
        """Return the line of a group at a place; None if there is another one, or none."""
        # A sealed file whose table is corrupt can still be read from its beginning.
        for read in (self._open_file.read, _read_anew):
            try:
                raw = read(file, offset)
                record: Any = from_line(file.kind.record, raw)
            except (*READ_ERRORS, BadLineError, NewerSchemaError, ValueError):
                continue
            if record.group_id == group_id:
                return Line(file, number, offset, raw, record, None)
        return None

    @property
    def has_attempts(self) -> bool:
        """Whether there are several attempts, of which later ones may have replaced groups."""
        return len(self._attempts) > 1

    def only_texts(self) -> list[str]:
        """Return the ids of the groups whose text is there, and that are not in the ledger; none without a ledger."""
        # Where the ledger is whole, no file with texts need be read to know that.
        if not self.run.has_ledger or self.is_complete:
            return []
        self._scan_once(*TEXT_KINDS, *self._counted_kinds)
        ledger = self._known.get(FileKind.LEDGER, _Places())
        recovered = self._recover()
        return [name for name in self._known.get(_TEXTS, _Places()) if name not in ledger and name not in recovered]

    def texts(self) -> Container[str]:
        """Return the ids of the groups whose text is there."""
        self._scan_once(*TEXT_KINDS)
        return self._known.get(_TEXTS, _Places())

    def text(self, group_id: str, place: TextPlace | None = None) -> GroupRecord | None:
        """Return the group with its text, or None if there is none or the file has changed. It is read at its place, by
        default the one that the ledger names. If the group is not there, all files with texts are searched, once.
        """
        if not self._scanned.issuperset(TEXT_KINDS):
            group = self._at(place or self._place_of(group_id), group_id)
            if group is not None:
                return group
        self._scan_once(*TEXT_KINDS)
        known = self._known.get(_TEXTS, _Places()).get(group_id)
        if known is None:
            return None
        return self._text_in([known.file], known.offset, group_id)

    def _place_of(self, group_id: str) -> TextPlace | None:
        """Return the place of a text that its line of the ledger names."""
        for line in self.lines_of([group_id]):
            record = line.record
            if isinstance(record, LedgerRecord) and record.text_file is not None and record.text_at is not None:
                return record.text, record.text_file, record.text_at
        return None

    def _at(self, place: TextPlace | None, group_id: str) -> GroupRecord | None:
        if place is None:
            return None
        kind, number, offset = place
        return self._text_in(self._texts_of.get((kind, number), ()), offset, group_id)

    def _text_in(self, files: Iterable[DumpFile], offset: int, group_id: str) -> GroupRecord | None:
        """Return the group from the first of these files that has it at this place."""
        for file in files:
            line = self._line_at(file, offset, group_id)
            if line is not None and isinstance(line.record, GroupRecord):
                return line.record
        return None

    # -- what is missing, corrupt or duplicate

    @property
    def has_read_texts(self) -> bool:
        """Whether all files with texts have been read, and not only single places in them."""
        return self._scanned.issuperset(TEXT_KINDS)

    def findings(self, *, texts: bool) -> Findings:
        """Find what is missing, corrupt or duplicate: in the ledger, or in what replaces it; with `texts`, in all
        files."""
        kinds = tuple(FileKind) if texts else self._counted_kinds
        self._scan_once(*kinds)
        recovered = self._recover()
        result = Findings()
        self._add_end(result)
        if recovered:
            text = (
                f"the ledger has corrupt or missing lines: {counted(len(recovered), 'group')} counted from the texts; "
                "groups whose text was not kept may be missing in statistics"
            )
            result.add("from_texts", Place(f"run {self.run.run_id}"), text)
        result.extend(self.wrong_lines(*kinds))
        # Of a running run the two are read at different times, and differ by what was written in between.
        if texts and self.run.has_ledger and self.state is not State.RUNNING:
            self._compare_texts(result)
        return result

    def wrong_lines(self, *kinds: FileKind) -> Findings:
        """Return the corrupt lines in files of these kinds, which have been read, and those that are there more than
        once."""
        result = Findings()
        for kind in kinds:
            result.extend(self._wrong[kind])
        return result

    @property
    def is_complete(self) -> bool | None:
        """Whether every ledger line that the run wrote is there; None if nothing is known to be missing, but no
        manifest says how many lines there were.
        """
        findings = self.findings(texts=False)
        if not _NOT_COMPLETE.isdisjoint(findings.counts):
            return False
        # Nothing is missing from the attempts whose number of lines is known; is it known of all?
        noted = self._noted_lines()
        attempts = range(1, max([*noted, *self._lines_of_attempt], default=1) + 1)
        if self.state is State.ENDED and all(attempt in noted for attempt in attempts):
            return True
        # A corrupt line may have been a group that is nowhere else.
        return False if findings.counts["corrupt_line"] else None

    def _noted_lines(self) -> dict[int, int]:
        """Return how many ledger lines each attempt wrote, where the manifest says so."""
        noted = {}
        for entry in self.run.noted.attempts:
            if entry.attempt is not None and entry.ledger_lines is not None:
                noted[entry.attempt] = entry.ledger_lines
        return noted

    def _add_end(self, result: Findings) -> None:
        """Add what the ledger lacks, and how the run ended."""
        run_id = self.run.run_id
        place = Place(f"run {run_id}")
        if not self.run.has_ledger:
            result.add("no_ledger", place, "no ledger found: groups whose text was not kept are missing in statistics")
        missing = self.run.noted.missing_in_all
        if missing:
            text = f"{counted(missing, 'group')} could not be written, according to the manifest"
            result.add("groups_missing", place, text)
        # Of a running run the numbers below are not final.
        if self.state is State.RUNNING:
            result.add("running", place, "is being written now")
            return
        if self.state is State.KILLED:
            result.add("no_regular_end", place, "has no regular end: it was killed")
        if not self.run.has_ledger:
            return
        noted = self._noted_lines()
        for attempt, lacking in self._lacking().items():
            text = f"{lacking:,} of {counted(noted[attempt], 'ledger line')} of attempt {attempt} are missing"
            result.add("lines_missing", place, text)

    def _lacking(self) -> dict[int, int]:
        """Return how many of the ledger lines that an attempt wrote are not there, by attempt."""
        lacking = {}
        for attempt, count in self._noted_lines().items():
            if count > self._lines_of_attempt[attempt]:
                lacking[attempt] = count - self._lines_of_attempt[attempt]
        return lacking

    def _compare_texts(self, result: Findings) -> None:
        """Groups whose text the ledger names and that are not there, and the other way round."""
        ledger = self._known.get(FileKind.LEDGER, _Places())
        texts = self._known.get(_TEXTS, _Places())
        for name, known in ledger.items():
            if known.text and name not in texts:
                text = f"the text of group {name} is in no {known.text} file"
                result.add("no_text", self.place(known.file, known.number), text)
        for name, known in texts.items():
            if name not in ledger:
                place = self.place(known.file, known.number)
                result.add("no_ledger_line", place, f"group {name} is not in the ledger")


@contextmanager
def without_collecting() -> Iterator[None]:
    """Let the garbage collector rest: reading makes millions of objects and no cycles, and collecting would take a
    third of the time. Several threads may be inside: the first to come turns it on again.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class OpenFile:
    """Reads lines at places: quickly if they come in the order of the files.

    Two files are open at a time, also of several runs: one of the ledger and one with texts are read in turn, and a
    dump may have more than there are descriptors.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # the page searches in one thread and shows in another
        self._open: dict[Path, io.BufferedIOBase] = {}  # the last one used comes last

    def read(self, file: DumpFile, offset: int) -> bytes:
        with self._lock:
            stream = self._open.pop(file.path, None) or open_lines(file.path, at_places=True)
            self._open[file.path] = stream
            while len(self._open) > 2:
                self._open.pop(next(iter(self._open))).close()
            # No seek without need: in compressed data it may begin anew.
            if stream.tell() != offset:
                stream.seek(offset)
            return stream.readline(MAX_LINE)


def _read_anew(file: DumpFile, offset: int) -> bytes:
    """Read a line at a place, of a compressed file by way of all that is before it."""
    with open_lines(file.path) as stream:
        stream.seek(offset)
        return stream.readline(MAX_LINE)


_TEXTS = "texts"


def _room(kind: FileKind) -> str:
    """Return within what a name counts once: a group has one text, whichever kind of file has it."""
    return _TEXTS if kind.holds_text else kind.value


def _name(record: Record) -> Any:
    """Return what tells a record from all others of its kind in a run."""
    if isinstance(record, GroupFacts):
        return record.group_id
    if isinstance(record, TrainedRecord):
        return record.attempt, record.step, record.group_id
    return getattr(record, "attempt", 1), getattr(record, "step", 0)


def _unit(record: Any) -> tuple[int, str, int | None, int]:
    """Return the attempt, and what is tried again as a whole: a step of a phase; where there are no steps, a question,
    which is a call."""
    phase, call = getattr(record, "phase", Phase.TRAIN), getattr(record, "call", 0)
    return record.attempt, phase, record.step, call if record.step is None else 0


def findings_of(contents: Iterable[Contents], *, texts: bool) -> Findings:
    """Return the findings of several runs."""
    result = Findings()
    for each in contents:
        result.extend(each.findings(texts=texts))
    return result
