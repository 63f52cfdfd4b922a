"""Whether a record can be trusted: every line by itself, the files against each other, and both against the manifest.

Invariant: reads only, and whatever a run of ours can leave behind passes, a kill at any moment included once the run
was resumed. Memory does not grow with the texts: for each group of the run at hand its id, a digest of its numbers and
its place are kept (about 400 bytes), and the findings are bounded.

A run that is being written is not held against itself, because its files are never read at the same moment.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rg_env.dump.codec import BadLineError, NewerSchemaError, to_line, wire_of
from rg_env.dump.files import DumpFile, manifest_name, parse_name
from rg_env.dump.line_check import FaultyRecordError
from rg_env.dump.lock import is_held
from rg_env.dump.read.dump import Run, open_run
from rg_env.dump.repair.findings import Findings, Trouble
from rg_env.dump.repair.order import GroupOrder, TrainedOrder
from rg_env.dump.repair.salvage import Record, lines_of, parse
from rg_env.dump.run_settings import RunSettings, batch_limit, settings_of
from rg_env.dump.schema import FileKind, GroupRecord, LedgerRecord, Phase, TrainedRecord, outcome_of
from rg_env.dump.write.routing import DumpPolicy, route

Advance = Callable[[int], None]


@dataclass
class Validation:
    """What was read and what was found.

    Attributes:
        texts: groups with their text, Atropos' included; `atropos` counts those among them that have nothing more.
        ledger_lines: groups in ledgers.
        trained: groups in the training batches of steps.
    """

    findings: Findings = field(default_factory=Findings)
    runs: int = 0
    texts: int = 0
    ledger_lines: int = 0
    trained: int = 0
    atropos: int = 0

    @property
    def good(self) -> bool:
        return not self.findings.total


def validate(*paths: str | Path, advance: Advance = lambda _: None) -> Validation:
    """Check records.

    Args:
        paths: dump folders, and single files. A single file is checked for itself only.
        advance: called with the bytes read since the last call.

    Raises:
        DumpError: a path has no dump. `NewerSchemaError`: a file needs a later version of rg_env.
    """
    result = Validation()
    for path in map(Path, paths):
        for run in open_run(path).runs:
            result.runs += 1
            _RunCheck(run, path.is_dir(), result, advance).check()
    return result


def bytes_in(*paths: str | Path) -> int:
    """How many bytes `validate` is going to read.

    Raises:
        DumpError: a path has no dump.
    """
    sizes = 0
    for path in paths:
        for run in open_run(path).runs:
            sizes += sum(file.path.stat().st_size for file in run.files if file.path.exists())
    return sizes


@dataclass(frozen=True, slots=True)
class _Text:
    """Where the text of a group is."""

    file: DumpFile
    line: int
    digest: int


class _RunCheck:
    """The checks of one run.

    Args:
        whole: whether all its files are here, so that they can be held against each other.
    """

    def __init__(self, run: Run, whole: bool, result: Validation, advance: Advance) -> None:
        self.run = run
        self.files = sorted(run.files, key=lambda file: (file.kind, file.batch, file.part))
        self.result = result
        self.found = result.findings
        self.advance = advance
        self.folder = run.files[0].path.parent
        self.live = whole and is_held(self.folder, run.run_id)
        self.whole = whole and not self.live
        self.settings = settings_of(run.manifest)
        self.texts: dict[str, _Text] = {}
        self.unknown_attempts: set[int] = set()

    def check(self) -> None:
        if self.live:
            self._remark("is being written now: only its finished files were checked, each for itself")
        self._check_manifest()
        files = [file for file in self.files if not (self.live and file.part)]
        if self.whole:
            self._check_names()
        self._check_texts([file for file in files if file.kind.holds_text])
        groups = self._check_ledger([file for file in files if file.kind is FileKind.LEDGER])
        self._check_trained([file for file in files if file.kind is FileKind.TRAINED], groups)

    # -- names

    def _check_manifest(self) -> None:
        path = self.folder / manifest_name(self.run.run_id)
        if self.run.manifest is not None:
            return
        if path.exists():
            self.found.add(Trouble.MANIFEST, path.name, 0, "no JSON object")
        elif any(parse_name(file.path) for file in self.run.files):
            self._remark("has no manifest here: nothing was held against its settings")

    def _check_names(self) -> None:
        expected: dict[FileKind, int] = {}
        for file in self.files:
            due = expected.get(file.kind, 0)
            if file.batch > due:
                missing = f"{due:04d}" if file.batch == due + 1 else f"{due:04d} to {file.batch - 1:04d}"
                self.found.add(Trouble.GAP, file.path.name, 0, f"batch {missing} before it is missing")
            elif file.batch < due:
                self.found.add(Trouble.DUPLICATE, file.path.name, 0, f"batch {file.batch:04d} is there twice")
            expected[file.kind] = file.batch + 1
            if file.part:
                self.found.add(Trouble.UNFINISHED, file.path.name, 0, "left behind by a run that did not end")

    # -- lines

    def _check_texts(self, files: Sequence[DumpFile]) -> None:
        positions: dict[FileKind, GroupOrder] = {}
        atropos = self.result.atropos
        for file in files:
            position = positions.setdefault(file.kind, GroupOrder())
            for number, group in self._records(file):
                assert isinstance(group, GroupRecord)
                self.result.texts += 1
                if group.schema_version:
                    self._check_text(file, number, group)
                    self._check_common(file, number, group, position)
                else:
                    self.result.atropos += 1
        if self.result.atropos > atropos:
            self._remark("is as Atropos writes it: item_id, rollouts, conversation and score are all there is to check")

    def _check_text(self, file: DumpFile, number: int, group: GroupRecord) -> None:
        first = self.texts.get(group.group_id)
        if first is not None:
            what = f"group {group.group_id} again, first in {first.file.path.name}, line {first.line}"
            self.found.add(Trouble.DUPLICATE, file.path.name, number, what)
        else:
            self.texts[group.group_id] = _Text(file, number, _digest(LedgerRecord.of(group, file.kind, None)))
        settings = self.settings.get(group.attempt)
        if settings is None:
            if (group.phase == Phase.EVAL) != (file.kind is FileKind.EVAL):
                self.found.add(Trouble.WRONG_FILE, file.path.name, number, f"a group of phase {group.phase}")
            return
        kind, reason = route(group, DumpPolicy.from_config(settings.config))
        if kind is not file.kind:
            right = f"belongs to the {kind} file" if kind else f"was not to be kept ({reason})"
            self.found.add(Trouble.WRONG_FILE, file.path.name, number, f"by the manifest's settings, it {right}")

    def _check_ledger(self, files: Sequence[DumpFile]) -> Container[str]:
        """Returns the groups that the ledger knows."""
        lines: dict[str, tuple[str, int]] = {}
        position = GroupOrder()
        for file in files:
            for number, record in self._records(file):
                assert isinstance(record, LedgerRecord)
                self.result.ledger_lines += 1
                if record.group_id in lines:
                    name, line = lines[record.group_id]
                    what = f"group {record.group_id} again, first in {name}, line {line}"
                    self.found.add(Trouble.DUPLICATE, file.path.name, number, what)
                    continue
                lines[record.group_id] = file.path.name, number
                self._check_common(file, number, record, position)
                self._check_reason(file, number, record)
                if self.whole:
                    self._check_against_text(file, number, record)
        if self.whole:
            for group_id, text in self.texts.items():
                if group_id not in lines:
                    what = f"group {group_id} is not in the ledger"
                    self.found.add(Trouble.NO_LEDGER_LINE, text.file.path.name, text.line, what)
        return lines

    def _check_trained(self, files: Sequence[DumpFile], groups: Container[str]) -> None:
        order = TrainedOrder()
        for file in files:
            name = file.path.name
            for number, record in self._records(file):
                assert isinstance(record, TrainedRecord)
                self.result.trained += 1
                self._check_run(file, number, record)
                back = order.goes_back(record)
                if back is not None:
                    self.found.add(Trouble.ORDER, name, number, back)
                if order.repeats(record):
                    what = f"group {record.group_id} again in step {record.step}"
                    self.found.add(Trouble.DUPLICATE, name, number, what)
                if self.whole and record.group_id not in groups:
                    what = f"trained on group {record.group_id}, which is not in the ledger"
                    self.found.add(Trouble.UNKNOWN_GROUP, name, number, what)

    def _check_reason(self, file: DumpFile, number: int, record: LedgerRecord) -> None:
        settings = self.settings.get(record.attempt)
        if settings is None or record.text_reason is None:
            return
        switch = record.text_reason.removesuffix("_off")
        if getattr(settings.config, switch, False):
            what = f"says {record.text_reason}, but the manifest has {switch}=true"
            self.found.add(Trouble.SETTINGS, file.path.name, number, what)

    def _check_against_text(self, file: DumpFile, number: int, record: LedgerRecord) -> None:
        text = self.texts.get(record.group_id)
        name = file.path.name
        if record.text is None:
            if text is not None:
                what = f"says that no text was kept ({record.text_reason}), but {text.file.path.name} has it"
                self.found.add(Trouble.DISAGREEMENT, name, number, what)
        elif text is None:
            what = f"the text of group {record.group_id} is in no {record.text} file"
            self.found.add(Trouble.NO_TEXT, name, number, what)
        elif text.digest != _digest(record):
            names = ", ".join(_differences(text, record))
            where = f"{text.file.path.name}, line {text.line}"
            self.found.add(Trouble.DISAGREEMENT, name, number, f"differs from {where} in {names}")

    def _check_common(
        self, file: DumpFile, number: int, record: GroupRecord | LedgerRecord, position: GroupOrder
    ) -> None:
        """What holds for a group's text and for its line in the ledger."""
        name = file.path.name
        self._check_run(file, number, record)
        settings = self.settings.get(record.attempt)
        back = position.goes_back(record, in_order=settings is None or not settings.fully_async)
        if back is not None:
            self.found.add(Trouble.ORDER, name, number, back)
        if settings is not None:
            self._check_settings(name, number, record, settings)
        elif self.settings and record.attempt not in self.unknown_attempts:
            self.unknown_attempts.add(record.attempt)
            self.found.add(Trouble.SETTINGS, name, number, f"the manifest knows no attempt {record.attempt}")

    def _check_run(self, file: DumpFile, number: int, record: Record) -> None:
        if parse_name(file.path) and record.run_id != file.run_id:
            self.found.add(Trouble.WRONG_FILE, file.path.name, number, f"of run {record.run_id}")

    def _check_settings(
        self, name: str, number: int, record: GroupRecord | LedgerRecord, settings: RunSettings
    ) -> None:
        base_scores = [rollout.base_score for rollout in record.rollouts]
        outcome = outcome_of(base_scores, settings.config.solved_at)
        if record.outcome is not outcome:
            what = f"is called {record.outcome}; with solved_at={settings.config.solved_at:g} it is {outcome}"
            self.found.add(Trouble.SETTINGS, name, number, what)
        due = settings.samples.get(Phase(record.phase))
        if due is not None and len(base_scores) != due:
            what = f"has {len(base_scores)} rollouts; the manifest says {due} for phase {record.phase}"
            self.found.add(Trouble.SETTINGS, name, number, what)

    def _records(self, file: DumpFile) -> Iterator[tuple[int, Record]]:
        """The whole records of a file; whatever else is there becomes a finding."""
        name = file.path.name
        number = 0
        try:
            for number, line in lines_of(file, self.advance):
                try:
                    record = parse(line, file, number)
                except FaultyRecordError as error:
                    self.found.add(Trouble.CONTRADICTION, name, number, str(error))
                except BadLineError as error:
                    self.found.add(Trouble.DAMAGED, name, number, str(error))
                except NewerSchemaError as error:
                    raise NewerSchemaError(f"{name}, line {number}: {error}") from None
                else:
                    if not line.endswith(b"\n"):
                        self.found.add(Trouble.DAMAGED, name, number, "the file ends without a line feed")
                    yield number, record
        except OSError as error:
            self.found.add(Trouble.DAMAGED, name, number + 1, f"cannot be read from here on ({error.strerror})")
            return
        if not number:
            self.found.add(Trouble.EMPTY, name, 0, "nothing is in it")
        limit = batch_limit(self.settings, file.kind)
        if limit is not None and number > limit:
            what = f"{number} lines; the manifest allows {limit} in a file"
            self.found.add(Trouble.OVERFULL, name, 0, what)

    def _remark(self, what: str) -> None:
        self.found.add(Trouble.REMARK, self.run.run_id, 0, what)


def _digest(record: LedgerRecord) -> int:
    """Equal for equal numbers, whatever white space their lines have. 64 bits: chance does not make them equal."""
    return hash(to_line(record))


def _differences(text: _Text, record: LedgerRecord) -> list[str]:
    """The names of the fields in which a text and its ledger line differ."""
    line = next(line for number, line in lines_of(text.file) if number == text.line)
    group = parse(line, text.file, text.line)
    assert isinstance(group, GroupRecord)
    mine = wire_of(to_line(LedgerRecord.of(group, text.file.kind, None)))
    theirs = wire_of(to_line(record))
    return [f"`{name}`" for name in mine if mine[name] != theirs[name]]
