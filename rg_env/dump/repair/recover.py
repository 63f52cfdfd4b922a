"""A mended copy of a damaged record.

Invariant: the record that is mended is only read. Every record in it that is whole is in the copy, once, byte for byte
if its line was sound; the copy passes `validate` in all that damage can have done to it. Where a text and its line in
the ledger disagree the text's numbers count, because they come from the same object as the text; a text that is gone
leaves its numbers in the ledger, with the reason `lost`.

Kept in memory: for each group its id and two numbers, and a ledger line for each one that has to be made anew.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rg_env.dump.codec import BadLineError, NewerSchemaError, to_line
from rg_env.dump.files import DumpFile, list_files, manifest_name
from rg_env.dump.lock import is_held
from rg_env.dump.read.dump import Run, open_run
from rg_env.dump.repair.mends import Mend, Recovery
from rg_env.dump.repair.order import TrainedOrder
from rg_env.dump.repair.salvage import Whole, lines_of, parse, salvage
from rg_env.dump.repair.validate import Advance
from rg_env.dump.run_settings import batch_limit, settings_of
from rg_env.dump.schema import FileKind, GroupRecord, LedgerRecord, NotKept, TrainedRecord
from rg_env.dump.write.batch import Batch
from rg_env.dump.write.compress import compress
from rg_env.errors import DumpError

_NO_LIMIT = 1 << 62
_AT_THE_END = (float("inf"), 0.0)


def recover(path: str | Path, out: str | Path, *, advance: Advance = lambda _: None) -> list[Recovery]:
    """Write a mended copy.

    Args:
        path: a dump folder, or a single file, whose lines are mended without a look at the rest of its run.
        out: a folder without dumps; made if need be.
        advance: called with the bytes copied since the last call.

    Returns:
        what became of each run.

    Raises:
        DumpError: no dump at `path`, `out` holds one already, or a run is being written now. `NewerSchemaError`: a
            file needs a later version of rg_env.
    """
    path, out = Path(path), Path(out)
    runs = open_run(path).runs
    for run in runs:
        if is_held(run.files[0].path.parent, run.run_id):
            raise DumpError(f"run {run.run_id} is being written now: mend it when it has ended")
    try:
        out.mkdir(parents=True, exist_ok=True)
        if list_files(out):
            raise DumpError(f"{out} has a dump in it already: choose an empty folder")
        return copy_runs(runs, out, whole=path.is_dir(), advance=advance)
    except OSError as error:
        raise DumpError(f"{out} cannot be written ({error.strerror}): choose another folder") from None


def copy_runs(runs: Sequence[Run], out: Path, *, whole: bool, advance: Advance) -> list[Recovery]:
    """The same for runs that are known not to be written now.

    Args:
        whole: whether all files of the runs are here, so that they can be held against each other.

    Raises:
        OSError: `out` cannot be written. `NewerSchemaError`.
    """
    return [_Mender(run, whole, out, advance).mend() for run in runs]


@dataclass(frozen=True, slots=True)
class _Made:
    """A line for the ledger, made from a text."""

    place: tuple[int, int]
    line: bytes
    source: str


class _Mender:
    """Mends one run."""

    def __init__(self, run: Run, whole: bool, out: Path, advance: Advance) -> None:
        self.run = run
        self.whole = whole
        self.out = out
        self.advance = advance
        self.report = Recovery(run.run_id)
        self.limit = batch_limit(settings_of(run.manifest), FileKind.LEDGER) or _NO_LIMIT
        self.known: dict[str, int] = {}
        self.texts: dict[str, FileKind] = {}
        self.made: dict[str, _Made] = {}
        self.in_ledger: set[str] = set()

    def mend(self) -> Recovery:
        """Order matters: what the ledger knows, then the texts, then the ledger that fits them."""
        ledger = self.run.files_of(FileKind.LEDGER)
        for file in ledger:
            for whole in self._wholes(file, quiet=True):
                assert isinstance(whole.record, LedgerRecord)
                self.known.setdefault(whole.record.group_id, hash(to_line(whole.record)))
        for kind in FileKind:
            if kind.holds_text:
                self._copy_texts(kind)
        self._copy_ledger(ledger)
        self._copy_trained()
        manifest = self.run.files[0].path.with_name(manifest_name(self.run.run_id))
        if self.run.manifest is not None:
            shutil.copyfile(manifest, self.out / manifest.name)
        elif manifest.exists():
            self.report.note(Mend.MANIFEST_LOST, manifest.name, 0, "no JSON object: left out")
        return self.report

    def _copy_texts(self, kind: FileKind) -> None:
        copy = _Copy(self.out, kind, self.run.run_id, _NO_LIMIT, self.report)
        for file in self.run.files_of(kind):
            for whole in self._wholes(file):
                group = whole.record
                assert isinstance(group, GroupRecord)
                if group.schema_version and not self._is_new_text(file, group):
                    continue
                copy.write(whole.raw)
                self.report.texts += 1
            copy.end_file(file)

    def _is_new_text(self, file: DumpFile, group: GroupRecord) -> bool:
        """Note the group; False if it is there already."""
        if group.group_id in self.texts:
            self.report.note(Mend.DUPLICATE, file.path.name, 0, f"dropped group {group.group_id}, there already")
            return False
        self.texts[group.group_id] = file.kind
        line = to_line(LedgerRecord.of(group, file.kind, None))
        if self.whole and self.known.get(group.group_id) != hash(line):
            self.made[group.group_id] = _Made((group.attempt, group.call), line, file.path.name)
        return True

    def _copy_ledger(self, files: Sequence[DumpFile]) -> None:
        copy = _Copy(self.out, FileKind.LEDGER, self.run.run_id, self.limit, self.report)
        made = [(made.place, group_id) for group_id, made in self.made.items() if group_id not in self.known]
        missing = deque(sorted(made, key=lambda one: one[0]))  # within a call, in the order of the texts
        seen = self.in_ledger

        def make_before(place: tuple[float, float]) -> None:
            """Write the lines that are missing before this place: a call's groups come after those it has already."""
            while missing and missing[0][0] < place:
                group_id = missing.popleft()[1]
                made = self.made[group_id]
                copy.write(made.line.rstrip(b"\n"))
                self.report.ledger_lines += 1
                seen.add(group_id)
                self.report.note(Mend.LEDGER_MADE, made.source, 0, f"made the ledger line of group {group_id}")

        for file in files:
            for whole in self._wholes(file):
                record = whole.record
                assert isinstance(record, LedgerRecord)
                if record.group_id in seen:
                    what = f"dropped the line of group {record.group_id}, there already"
                    self.report.note(Mend.DUPLICATE, file.path.name, 0, what)
                    continue
                make_before((record.attempt, record.call))
                seen.add(record.group_id)
                copy.write(self._fitting(file, whole, record))
                self.report.ledger_lines += 1
            if file is files[-1]:
                make_before(_AT_THE_END)
            copy.end_file(file)
        make_before(_AT_THE_END)  # there was no ledger
        copy.end()

    def _fitting(self, file: DumpFile, whole: Whole, record: LedgerRecord) -> bytes:
        """The ledger's line as it has to be, given the texts that there are."""
        made = self.made.get(record.group_id)
        if made is not None:
            what = f"the line of group {record.group_id} made anew from its text"
            self.report.note(Mend.LEDGER_REPLACED, file.path.name, 0, what)
            return made.line.rstrip(b"\n")
        if self.whole and record.text is not None and record.group_id not in self.texts:
            what = f"the text of group {record.group_id} is lost, its numbers are kept"
            self.report.note(Mend.TEXT_LOST, file.path.name, 0, what)
            return to_line(replace(record, text=None, text_reason=NotKept.LOST)).rstrip(b"\n")
        return whole.raw

    def _copy_trained(self) -> None:
        copy = _Copy(self.out, FileKind.TRAINED, self.run.run_id, _NO_LIMIT, self.report)
        order = TrainedOrder()
        for file in self.run.files_of(FileKind.TRAINED):
            for whole in self._wholes(file):
                record = whole.record
                assert isinstance(record, TrainedRecord)
                what = f"group {record.group_id} in step {record.step}"
                order.goes_back(record)
                if order.repeats(record):
                    self.report.note(Mend.DUPLICATE, file.path.name, 0, f"dropped {what}, there already")
                elif self.whole and record.group_id not in self.in_ledger:
                    self.report.note(Mend.UNKNOWN_GROUP, file.path.name, 0, f"dropped {what}: nothing is left of it")
                else:
                    copy.write(whole.raw)
                    self.report.trained += 1
            copy.end_file(file)

    def _wholes(self, file: DumpFile, quiet: bool = False) -> Iterator[Whole]:
        """All whole records of a file; what is damaged is noted unless `quiet`."""
        number, open_end = 0, False
        try:
            for number, line in lines_of(file, (lambda _: None) if quiet else self.advance):
                try:
                    record = parse(line, file, number)
                except BadLineError as error:
                    saved, lost = salvage(line, file, number)
                    if not quiet:
                        self._note_damage(file, number, error, len(saved), lost)
                    yield from saved
                else:
                    open_end = not line.endswith(b"\n")
                    yield Whole(record, line.removesuffix(b"\n"))
        except NewerSchemaError as error:
            raise NewerSchemaError(f"{file.path.name}, line {number}: {error}") from None
        except (FileNotFoundError, PermissionError) as error:  # that is not damage
            raise DumpError(f"{file.path} cannot be read ({error.strerror}): mend that first") from None
        except OSError as error:
            if not quiet:
                what = f"cannot be read from here on ({error.strerror})"
                self.report.note(Mend.UNREADABLE, file.path.name, number + 1, what)
        if open_end and not quiet:
            self.report.note(Mend.LINE_FEED, file.path.name, number, "ended the last line")

    def _note_damage(self, file: DumpFile, number: int, error: BadLineError, saved: int, lost: int) -> None:
        if saved or not lost:
            what = f"took {saved} whole record{'s'[: saved != 1]} out of a damaged line"
            self.report.note(Mend.SAVED, file.path.name, number, what)
        if lost:
            self.report.note(Mend.DAMAGED, file.path.name, number, f"left out {lost} bytes ({error})")
            if file.kind.holds_text:
                self.report.damaged_texts += 1
            elif file.kind is FileKind.LEDGER:
                self.report.damaged_ledger += 1


class _Copy:
    """The files of one kind in the copy. They end where the originals end, unless made lines overfill one."""

    def __init__(self, out: Path, kind: FileKind, run_id: str, limit: int, report: Recovery) -> None:
        self._batch = Batch(out, kind, run_id, limit)
        self._report = report

    def write(self, line: bytes) -> None:
        if self._batch.lines >= self._batch.limit:
            self._batch.finish()
        self._batch.prepare()
        self._batch.append([line + b"\n"])

    def end_file(self, file: DumpFile) -> None:
        """An original has ended."""
        name = file.path.name
        copy = self._batch.finish()
        if copy is None:
            self._report.note(Mend.EMPTY, name, 0, "left out: nothing in it is whole")
            return
        if file.compressed:
            copy = compress(copy)
        if copy.name != name:
            self._report.note(Mend.RENAMED, name, 0, f"is {copy.name} in the copy")

    def end(self) -> None:
        self._batch.finish()
