"""Reading dumps: a folder or files, finished or being written, in constant memory.

`open_run` finds the files. Before anything is read, one pass over them decides which lines count and what is missing
(`rg_env.dump.contents`). Then records and frames are made from the same lines, whichever is asked for. A corrupt line
affects no other line. Needs neither torch nor ray nor skyrl.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from rg_env.base.choices import ResponseFormat
from rg_env.base.wording import counted, visible
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump.contents import Contents, Findings, OpenFile, TextPlace, findings_of
from rg_env.dump.files import DumpFile, Line
from rg_env.dump.run_files import Run, run_names
from rg_env.dump.schema import (
    RG_DUMP,
    ROLLOUT_FACTS,
    FileKind,
    GroupFacts,
    GroupRecord,
    LedgerRecord,
    NotKept,
    Phase,
    Record,
    RolloutRecord,
    StepRecord,
    TrainedRecord,
)
from rg_env.scoring.parse import with_opening

if TYPE_CHECKING:
    import polars as pl

    from rg_env.dump.conditions import Condition
    from rg_env.dump.frames import Batch

_NAMES_SHOWN = 3
"""How many runs the representation of a dump names."""
_FRAME_BYTES, _FRAME_LINES = 1 << 24, 1_000
"""Lines from which one frame is made: enough for throughput, few enough that the garbage collector, which goes through
the lists of all lines that are held, takes little time."""

_BATCH_LINES = 8_000
"""Lines of the ledger that are in memory at a time while statistics are computed."""


@dataclass(repr=False)
class Dump:
    """The runs that `open_run` found.

    By default a step that was run again after a crash is taken from its last attempt only. Iterators are lazy, and read
    what was there when the first of them was made: open a run that is being written again to see more of it.

    Attributes:
        runs: in the order given, those of a folder by run id.
        conditions: what every rollout that is read matches: see `where`.
        has_all_attempts: see `all_attempts`.
    """

    runs: tuple[Run, ...]
    conditions: tuple[Condition, ...] = ()
    has_all_attempts: bool = False
    _contents: dict[str, Contents] = field(default_factory=dict, compare=False)
    _open_file: OpenFile = field(default_factory=OpenFile, compare=False)

    def __repr__(self) -> str:
        """Three lines: the runs, their files, and how to read them."""
        names = list(self.names.values())
        shown = ", ".join(names[:_NAMES_SHOWN])
        if len(names) > _NAMES_SHOWN:
            shown += ", …"
        files_by_kind: Counter[FileKind] = Counter()
        for run in self.runs:
            files_by_kind.update(file.kind for file in run.files)
        kinds = ", ".join(f"{count} {kind}" for kind, count in files_by_kind.items())
        ledgers = sum(run.has_ledger for run in self.runs)
        lines = (
            f"Dump of {counted(len(names), 'run')}: {shown}",
            f"{files_by_kind.total()} files: {kinds}; runs with a ledger: {ledgers}",
            "one row per rollout: scan(), ledger_frame(); texts: groups(), rollouts()",
        )
        return "\n".join(visible(line, one_line=True) for line in lines)

    @cached_property
    def names(self) -> dict[str, str]:
        """A short name of each run, by run id: see `run_names`."""
        return run_names(self.runs)

    # -- what is there

    def findings(self, *, texts: bool = True) -> Findings:
        """Return what is missing, corrupt or there more than once, and how runs ended.

        Args:
            texts: whether files with texts are asked, too, all of which are then read once. Statistics do not.
        """
        return findings_of(map(self._contents_of, self.runs), texts=texts)

    @property
    def has_read_texts(self) -> bool:
        """Whether the files with texts of every run have been read, and not only single groups in them."""
        return all(self._contents_of(run).has_read_texts for run in self.runs)

    @property
    def has_ledger(self) -> bool:
        """Whether every run has a ledger; if not, statistics lack the groups whose text was not kept."""
        return all(run.has_ledger for run in self.runs)

    @property
    def has_every_group(self) -> bool | None:
        """Whether every ledger line that the runs wrote is there; None if nothing is known to be missing, but no
        manifest says how many there were, or the program of an imported run did not save all.
        """
        complete = [self._contents_of(run).is_complete for run in self.runs]
        if False in complete:
            return False
        if None in complete or self.never_saved:
            return None
        return True

    @property
    def never_saved(self) -> list[str]:
        """What the programs of imported runs keep out of their files, a sentence for each program."""
        return list(dict.fromkeys(run.never_saved for run in self.runs if run.never_saved))

    # -- settings

    @cached_property
    def settings(self) -> dict[tuple[str, int], RGDumpConfig]:
        """The settings of every attempt whose manifest has them, by run id and attempt."""
        settings = {}
        for run in self.runs:
            for entry in run.noted.attempts:
                of_attempt = entry.rg_dump
                if entry.attempt is not None and of_attempt:
                    settings[run.run_id, entry.attempt] = of_attempt
        return settings

    def settings_for(self, group: GroupFacts) -> RGDumpConfig:
        """Return the settings with which a group was recorded. Where no manifest has them, the defaults; for a group of
        another environment, such as an import, with the lenient format, since its prompt may not ask for a think block.
        """
        known = self.settings.get((group.run_id, group.attempt))
        if known is None and group.environment != RG_DUMP:
            return RGDumpConfig(format=ResponseFormat.LENIENT)
        return known or RGDumpConfig()

    def solved_at(self, group: GroupFacts) -> float:
        """Return the base score from which a rollout of a group counts as solved: its own, else that of the
        settings."""
        if group.solved_at is None:
            return self.settings_for(group).solved_at
        return group.solved_at

    def with_opening(self, group: GroupRecord) -> GroupRecord:
        """Return a group with the `<think>` that the chat template wrote (`prefilled_think`) in front of what the model
        wrote. Records lack it, as a part of the prompt; readers without that template need it.
        """
        if not self.settings_for(group).prefilled_think:
            return group
        rollouts = []
        for rollout in group.rollouts:
            conversation = list(rollout.prompt)
            for message in rollout.conversation[len(conversation) :]:
                if message["role"] == "assistant":
                    message = message | {"content": with_opening(message["content"])}
                conversation.append(message)
            rollouts.append(msgspec.structs.replace(rollout, conversation=conversation))
        return msgspec.structs.replace(group, rollouts=rollouts)

    # -- parts of it

    def all_attempts(self) -> Dump:
        """Return the same runs with what a later attempt replaced, in every reader."""
        return replace(self, has_all_attempts=True)

    def where(self, conditions: Iterable[str]) -> Dump:
        """Return the rollouts that match all conditions, in every reader. Records of training and of steps, which have
        no columns of rollouts, are not filtered.

        Args:
            conditions: in SQL, see `rg_env.dump.conditions.parse_condition`.

        Returns:
            a dump that reads only these. Its readers of rollouts raise a `ConditionError` if nothing matches.

        Raises:
            ConditionError: a condition is invalid.
        """
        # Here and below, not at the top: reading records alone must not load polars.
        from rg_env.dump.conditions import parse_condition

        parsed = tuple(map(parse_condition, conditions))
        if not parsed:
            return self
        return replace(self, conditions=(*self.conditions, *parsed))

    @property
    def whole_groups(self) -> bool:
        """False if conditions may have removed some rollouts of a group but not others: pass@k and outcomes of the rest
        would be wrong.
        """
        return not any(condition.splits_groups for condition in self.conditions)

    # -- as objects

    def groups(self) -> Iterator[GroupRecord]:
        """Return the groups whose text was kept, by run and kind of file, in the order of writing.

        Raises:
            ConditionError: no rollout matches the conditions.
            NewerSchemaError: a file needs a later version of rg_env.
        """
        return self._records(GroupRecord)

    def text(self, run_id: str, group_id: str, place: TextPlace | None = None) -> GroupRecord | None:
        """Return the group with its text, whatever the conditions; None if there is none. Quick in the order of files.

        Args:
            place: `text`, `text_file` and `text_at` of its row of `scan` or of its line in the ledger, which is then
                not looked for. If another group is there, this one is searched.
        """
        for run in self.runs:
            if run.run_id == run_id:
                return self._contents_of(run).text(group_id, place)
        return None

    def only_texts(self) -> Iterator[tuple[str, str]]:
        """Run id and group id of the groups with a text that the ledger of their run lacks."""
        for run in self.runs:
            for name in self._contents_of(run).only_texts():
                yield run.run_id, name

    def rollouts(self) -> Iterator[tuple[GroupRecord, RolloutRecord]]:
        """Every rollout whose text was kept, with its group. Errors as `groups`."""
        return ((group, rollout) for group in self.groups() for rollout in group.rollouts)

    def ledger(self) -> Iterator[LedgerRecord]:
        """Return the lines of the ledger, in the order of writing. Runs without a ledger have none. Errors as
        `groups`."""
        return self._records(LedgerRecord)

    def why_no_texts(self) -> str | None:
        """Return why the text of no training group was kept, with the settings that decided; None if one was kept."""
        reasons: Counter[str] = Counter()
        for record in self.ledger():
            if record.phase == Phase.TRAIN:
                if record.text:
                    return None
                reasons[record.text_reason] += 1
        thresholds = {config.rollout_save_score_threshold for config in self.settings.values()}
        decided = ["dump_other_rollouts=false", *(f"rollout_save_score_threshold={number:g}" for number in thresholds)]
        words: dict[str, str] = {
            NotKept.ROLLOUTS_OFF: "above the threshold (dump_rollouts=false)",
            NotKept.FAILED_OFF: "all wrong (dump_failed_rollouts=false)",
            NotKept.OTHER_OFF: f"neither above the threshold nor all wrong ({', '.join(decided)})",
        }
        counts = [f"{count:,} {words.get(name, 'without a response')}" for name, count in reasons.most_common()]
        if not counts:
            return None
        return f"no rollouts saved: {', '.join(counts)}"

    def trained(self) -> Iterator[TrainedRecord]:
        """Return what each step was trained on, where our trainers have recorded it. Errors as `groups`."""
        return self._records(TrainedRecord)

    def steps(self) -> Iterator[StepRecord]:
        """Return the trainer's own numbers of each step. Errors as `groups`."""
        return self._records(StepRecord)

    # -- as frames

    def _frames(self, columns: Collection[str] | None = None, *, texts: bool = False) -> Iterator[pl.DataFrame]:
        """Yield the rows of `scan` with these columns, in frames of some MB; a group is never in two of them."""
        from rg_env.dump.frames import SCHEMA, TEXT_SCHEMA

        if columns is None:
            columns = TEXT_SCHEMA if texts else SCHEMA
        names = list(columns)
        tests = [condition.test for condition in self.conditions]
        tested = self._tested_columns()
        matches = not tests
        for run in self.runs:
            for frame in self._frames_of(run, list(dict.fromkeys([*names, *tested])), texts):
                if tests:
                    frame = frame.filter(tests)
                    matches = matches or frame.height > 0
                yield frame.select(names)
        if not matches:
            self.refuse_conditions(texts=texts)

    def read_batches[T](
        self, columns: Collection[str], reduce: Callable[[Batch], T], types: Mapping[str, pl.DataType] | None = None
    ) -> list[T]:
        """Read the groups with these columns, and the rollouts that match the conditions: as many as `scan`, and also
        what a later attempt replaced, for `in_order` of `rg_env.dump.frames`. Each line is decoded once.

        Args:
            types: of columns of words, which are texts otherwise.
            reduce: called with thousands of groups at a time, so that no more are in memory.

        Returns:
            what it returned, at least once: `analysis.stats` joins these frames.
        """
        from rg_env.dump.frames import RECOVERED, RUN, Columns, all_of

        tests = [condition.test for condition in self.conditions]
        tested = self._tested_columns()
        taken, size = Columns(list(dict.fromkeys([*columns, *tested])), {} if tests else types), 0
        results: list[T] = []

        def flush() -> None:
            nonlocal size
            batch, size = taken.batch()._replace(size=size), 0
            if tests:
                matches = batch.rows(tested).select(all_of(tests)).to_series()
                batch = batch._replace(rollouts=batch.rollouts.filter(matches))
            results.append(reduce(batch))

        def take(line: Line) -> None:
            nonlocal size
            # Columns are taken in another way from another kind of file.
            if size and line.file.kind is not taken.kind:
                flush()
            taken.take(line)
            size += len(line.raw)
            if len(taken) == _BATCH_LINES or size > _FRAME_BYTES:
                flush()

        taken.enter(**{RUN: 0, RECOVERED: False})  # without a run, too, groups have these columns
        for number, run in enumerate(self.runs):
            contents, kinds = self._contents_of(run), run.kinds_for_frames(texts=False)
            taken.enter(**{RUN: number, RECOVERED: False})
            for kind in kinds:
                contents.read(kind, take)
            if FileKind.LEDGER in kinds and contents.recovered():
                taken.enter(**{RUN: number, RECOVERED: True})
                for line in contents.recovered():
                    take(line)
        flush()
        return results

    def repeated(self) -> list[int]:
        """Return the numbers of the runs, which have been read, with several attempts, of which only the last is
        read."""
        if self.has_all_attempts:
            return []
        return [number for number, run in enumerate(self.runs) if self._contents_of(run).has_attempts]

    def refuse_conditions(self, *, texts: bool = False) -> None:
        """Raise a ConditionError because no rollout matches the conditions, unless there are no rollouts."""
        from rg_env.base.hints import what_there_is
        from rg_env.dump.conditions import ConditionError

        tested = list(dict.fromkeys(["task", *self._tested_columns()]))
        hint = what_there_is(frame for run in self.runs for frame in self._frames_of(run, tested, texts))
        # A dump without any rollout is not the condition's fault.
        if hint:
            conditions = " and ".join(condition.text for condition in self.conditions)
            raise ConditionError(f"no rollout matches {conditions}{hint}")

    def scan(self, *, texts: bool = False) -> pl.LazyFrame:
        """Return one row per rollout, null for numbers and "" for texts that are absent.

        Groups without rollouts have no row. Nothing is read before `collect`, and then only the columns that the query
        asks for, in constant memory if it aggregates and is collected with `engine="streaming"`.

        Args:
            texts: False reads the ledger, and the texts of runs that have none; True reads the files with texts, which
                lack groups whose text was not kept, and also gives `conversation`, `answer` and `entry`.

        Raises:
            ConditionError: no rollout matches the conditions.
            DumpError: a file cannot be read.
            NewerSchemaError: as `groups`.
        """
        from rg_env.dump.frames import SCHEMA, TEXT_SCHEMA, scan_frames

        return scan_frames(TEXT_SCHEMA if texts else SCHEMA, partial(self._frames, texts=texts))

    def frame_of(self, group_ids: Collection[str]) -> pl.DataFrame:
        """Return the rows of `scan` of these groups; only their lines are read, after those of the whole ledger have
        been."""
        import polars as pl

        from rg_env.dump.frames import SCHEMA, rollouts_frame

        frames = [pl.DataFrame(schema=SCHEMA)]
        for run in self.runs:
            for batch in _batches(self._contents_of(run).lines_of(group_ids)):
                frames.append(rollouts_frame(batch, list(SCHEMA)))
        frame = pl.concat(frames)
        for condition in self.conditions:
            frame = frame.filter(condition.test)
        return frame

    def ledger_frame(self) -> pl.DataFrame:
        """`scan`, in memory. Errors as `scan`."""
        import polars as pl

        from rg_env.dump.frames import SCHEMA

        return pl.concat([pl.DataFrame(schema=SCHEMA), *self._frames()])

    def trained_frame(self) -> pl.DataFrame:
        """`trained` with one row per record."""
        import polars as pl

        from rg_env.dump.column_types import polars_schema

        rows = [msgspec.structs.asdict(record) for record in self.trained()]
        return pl.DataFrame(rows, schema=polars_schema(TrainedRecord), orient="row")

    def files_to_read(self, *, texts: bool = False) -> list[DumpFile]:
        """Return the files that `scan` reads."""
        files = []
        for run in self.runs:
            files += run.files_of(*run.kinds_for_frames(texts=texts))
        return files

    # -- inside

    def _tested_columns(self) -> list[str]:
        """Return the columns that the conditions need."""
        columns: dict[str, None] = {}  # each once, in the order of the conditions
        for condition in self.conditions:
            columns |= dict.fromkeys(condition.columns)
        return list(columns)

    def _contents_of(self, run: Run) -> Contents:
        """Return what the run's files hold; shared by all parts of a dump."""
        if run.run_id not in self._contents:
            self._contents[run.run_id] = Contents(run, self._open_file)
        return self._contents[run.run_id]

    def _records[R: Record](self, of: type[R]) -> Iterator[R]:
        """Return the records of a class; of groups, with the rollouts that match the conditions."""
        kinds = [kind for kind in FileKind if issubclass(kind.record, of)]
        lines = chain.from_iterable(self._lines(run, kinds) for run in self.runs)
        if self.conditions and issubclass(of, GroupFacts):
            return self._matching(lines)
        return (line.record for line in lines if isinstance(line.record, of))

    def _matching(self, lines: Iterator[Line]) -> Iterator[Any]:
        """Yield the groups in these lines, with the rollouts that match the conditions."""
        from rg_env.dump.frames import all_of, rollouts_frame

        tested = self._tested_columns()
        tests = [condition.test for condition in self.conditions]
        has_match = False
        for batch in _batches(lines):
            # A batch is one frame, so that polars tests many groups at a time; `start` is where a group begins in it.
            sizes = [_size(line.record) for line in batch]
            matches = rollouts_frame(batch, tested).select(match=all_of(tests))["match"].to_list()
            start = 0
            for line, size in zip(batch, sizes, strict=True):
                numbers = [number for number in range(size) if matches[start + number]]
                start += size
                if numbers:
                    has_match = True
                    yield _only(line.record, numbers)
        if not has_match:
            for _ in self._frames(["task"]):  # raises the ConditionError, unless groups without a text match
                pass

    def _lines(self, run: Run, kinds: Iterable[FileKind]) -> Iterator[Line]:
        """Return the lines that count."""
        return self._contents_of(run).lines(*kinds, all_attempts=self.has_all_attempts)

    def _frames_of(self, run: Run, columns: list[str], texts: bool) -> Iterator[pl.DataFrame]:
        from rg_env.dump.frames import rollouts_frame

        for batch in _batches(self._lines(run, run.kinds_for_frames(texts=texts))):
            yield rollouts_frame(batch, columns)


def _batches(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Yield the lines in lists of some MB, each of one kind of file."""
    held: list[Line] = []
    size = 0
    for line in lines:
        if held and (size > _FRAME_BYTES or len(held) == _FRAME_LINES or held[0].file.kind is not line.file.kind):
            yield held
            held, size = [], 0
        held.append(line)
        size += len(line.raw)
    if held:
        yield held


def _size(record: Any) -> int:
    """Return the number of rollouts of a group."""
    if isinstance(record, LedgerRecord):
        return len(record.repetition)
    return len(record.rollouts)


def _only(group: Any, numbers: Collection[int]) -> Any:
    """Return the group with these rollouts only."""
    names = ROLLOUT_FACTS if isinstance(group, LedgerRecord) else ("rollouts",)
    lists = {}
    for name in names:
        values = getattr(group, name)
        if values is not msgspec.UNSET:  # a column that the line does not have
            lists[name] = [values[number] for number in numbers]
    return msgspec.structs.replace(group, **lists)
