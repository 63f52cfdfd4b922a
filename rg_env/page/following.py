"""What the page shows of dumps: read once in a thread, and read on while the runs go on.

Invariant: groups are numbered in the order in which they were read and keep their numbers until everything is read
anew, so a list of them only grows at its end. Figures are those of the report. A ledger file that has grown is read
again as a whole, since it has at most `groups_per_file` lines; finished ones are not. When a run has begun, everything
is read anew, because its settings decide what is solved; likewise when it has ended, because only then it can be said
what is missing.

Not covered: conditions on columns that are not held here see what there was when they were first asked. Where groups
are in memory, a later attempt that replaces some of them takes these out of the list.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from rg_env.analysis.stats import Reading, step_numbers, threshold
from rg_env.base.errors import RGEnvError, describe
from rg_env.dump import Dump, GroupRecord
from rg_env.dump.conditions import Condition, parse_condition
from rg_env.dump.files import DumpFile
from rg_env.dump.frames import GROUP, RUN, UNIT, Batch, in_order
from rg_env.dump.group_text import Query
from rg_env.dump.manifest import State
from rg_env.dump.run_files import Run, find_runs
from rg_env.page import STATISTICS, summarize
from rg_env.page.figures import named
from rg_env.page.page import summary_json
from rg_env.page.report_groups import Group, add_advantages, ledger_groups, recorded_group, trained_on
from rg_env.scoring.types import Status, Violation

TICK_SECONDS = 1.0
"""After which the files of a run that goes on are looked at again."""
ENDED_SECONDS = 5.0
"""The same, of runs that have ended and may be resumed."""
IDLE_SECONDS = 20.0
"""After which a page that asks nothing is not read for."""
SEARCH_SECONDS = 0.3
"""For which one request searches texts."""
LONGEST_PAUSE = 2.0
"""After which files are looked at again at the latest, while a run goes on."""
_SHARE = 20
"""Figures that took a second of the processor are not made again before this many seconds; a look at files likewise."""
_TEXT_PLACE = ("text", "text_file", "text_at")
_OF_GROUPS = ("run_id", "group_id", "task", "phase", "environment", "outcome", "no_signal", "step", "item", "solved_at")
_OF_ROLLOUTS = ("base_score", "reward", "violation", "status", "response_tokens", "truncated")
_SMALL = pl.Schema(
    {"violation": pl.Enum(["", *Violation]), "status": pl.Enum(Status), "response_tokens": pl.Int32()},
)
_TESTABLE = {*_OF_GROUPS, *_OF_ROLLOUTS}
"""The columns that are held in memory, on which a condition is tested at once."""
_LEDGER = "ledger"
"""Column of groups: the place in `_ledgers` of what has the line."""


class _Part(NamedTuple):
    """Groups that were read together: what figures are made of, and what lists and conditions need."""

    measured: Batch
    groups: pl.DataFrame
    rollouts: pl.DataFrame


@dataclass
class _Found:
    """The groups that match a condition and a text, as far as they were looked for.

    Attributes:
        parts: the number of parts whose groups were tested.
        tested: the groups that meet the condition; `searched`: how many of them were searched for the text.
        hits: those that have the text, too.
    """

    condition: Condition | None
    query: Query
    parts: int = 0
    tested: list[int] = field(default_factory=list)
    searched: int = 0
    hits: list[int] = field(default_factory=list)


class Following:
    """Some dumps, being followed by a thread from construction to `close`.

    Attributes:
        version: one more each time that `summary` is another one.
        read, left: bytes of the ledger that were read and that are left, before compression if it was noted.
        renumbered: how often groups got other numbers, because everything was read anew.
        problem: why nothing can be shown, in a line; "" if something can.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = list(paths)
        self._finding = threading.Lock()
        self._asked = time.monotonic()
        self._closed = threading.Event()
        self._states: dict[str, State] = {}
        self._has_more, self._figures_after = False, 0.0
        self._clear(Dump(()))
        self.summary = summary_json(None)
        self.version = self.read = self.left = self.renumbered = 0
        self.problem = ""
        self._thread = threading.Thread(target=self._follow, name="following", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()

    def _clear(self, dump: Dump) -> None:
        self._dump = dump
        self._texts = Dump(dump.runs)
        self._parts: list[_Part] = []
        # Groups that were read, and how many of them no later attempt replaced.
        self._counted = (0, 0)
        # Files whose groups are not those of the dump that was opened first, each with its run.
        self._ledgers: list[Run | None] = [None]  # None: of the dump itself
        self._numbers: dict[str, int] = {}
        # By run, kind and number, because a writer renames its file when it is full.
        self._sizes: dict[tuple[str, str, int], int] = {}
        self._seen: dict[tuple[str, str, int], set[str]] = {}
        self._found: dict[str, _Found] = {}

    # -- reading

    def _follow(self) -> None:
        """Read all, then look for more until a run begins or ends, and so on."""
        while not self._closed.is_set():
            try:
                self._read_all()
                self.problem = ""
                while not self._closed.is_set() and self._read_on():
                    pass
            except RGEnvError as error:  # there is nothing yet, or it cannot be read
                self.problem = str(error)
                self._rest(TICK_SECONDS)
            except Exception as error:  # a fault of ours: the page says so, and shows what it has
                self.problem = describe(error)
                self._rest(IDLE_SECONDS)

    def _rest(self, seconds: float) -> None:
        """Wait; longer while nobody looks at the page."""
        self._closed.wait(seconds)
        while time.monotonic() - self._asked > IDLE_SECONDS and not self._closed.wait(TICK_SECONDS):
            pass

    def _read_all(self) -> None:
        runs = find_runs(self._paths)
        dump = Dump(runs)
        self._reading = Reading(threshold(dump, None), STATISTICS, to_match=True)
        self._columns = list(dict.fromkeys([*self._reading.columns, *_TEXT_PLACE, *_OF_ROLLOUTS]))
        states = _states_of(runs)
        sizes = dict(_ledger_sizes(runs))
        total, began = sum(sizes.values()), time.monotonic()
        # Later, what there is stays on the page until all has been read again.
        is_first = not self._parts
        parts: list[_Part] = []
        if is_first:
            self._clear(dump)
            parts = self._parts
        shown_at, cost = began, 0.0

        def take(batch: Batch) -> None:
            nonlocal shown_at, cost
            parts.append(self._part(batch, 0))
            self.read += batch.size
            self.left = max(0, total - self.read)
            # What there is so far, if the rest takes a while; the last batch is part of the whole.
            if is_first and self.left and time.monotonic() - shown_at > _SHARE / 4 * cost:
                start = time.monotonic()
                self._show(is_whole=False)
                shown_at, cost = time.monotonic(), time.monotonic() - start

        if is_first:
            self.read, self.left = 0, total
        dump.read_batches(self._columns, take)
        with self._finding:
            if not is_first:
                self._clear(dump)
                self._parts = parts
                self.renumbered += 1
            self._numbers = {run.run_id: number for number, run in enumerate(runs)}
            self._sizes, self._states = sizes, states
        self.left = 0
        self._show(is_whole=True)

    def _read_on(self) -> bool:
        """Read what was written since, after a while; returns False if all must be read anew."""
        start = time.thread_time()
        runs = find_runs(self._paths)
        self._texts = Dump(runs)
        for run in runs:
            for file in run.files_of(*run.kinds_for_frames(texts=False)):
                if self._read_file(run, file):
                    self._has_more = True
        states = _states_of(runs)
        has_changed = states != self._states
        self._states = states
        if has_changed:
            return False
        pause = ENDED_SECONDS
        if State.RUNNING in states.values():
            pause = min(LONGEST_PAUSE, max(TICK_SECONDS, _SHARE * (time.thread_time() - start)))
        if self._has_more and time.monotonic() > self._figures_after:
            self._show(is_whole=True)
        self._rest(pause)
        return True

    def _read_file(self, run: Run, file: DumpFile) -> bool:
        """Read a file if it has grown; returns whether it has groups that were not known."""
        key = (run.run_id, file.kind.value, file.batch)
        with suppress(OSError):  # renamed just now: the next time
            size = file.path.stat().st_size
            # A file that was sealed is smaller, and has nothing new.
            if size <= self._sizes.get(key, 0):
                return False
            ledger = replace(run, files=(file,))
            batches = Dump((ledger,)).read_batches(self._columns, lambda batch: batch)
            was_read = key in self._sizes
            self._sizes[key] = size
            number = self._numbers.setdefault(run.run_id, len(self._numbers))
            added = [self._add(batch, key, number, ledger, was_read) for batch in batches]
            return any(added)
        return False

    def _add(self, batch: Batch, key: tuple[str, str, int], number: int, ledger: Run, was_read: bool) -> bool:
        """Add the groups of a file that are not known."""
        seen = self._seen.get(key)
        if seen is None:
            seen = set()
            if was_read:  # by the pass over everything
                is_known = (pl.col("run_id") == key[0]) & pl.col("group_id").is_in(batch.groups["group_id"].implode())
                for part in self._parts:
                    seen.update(part.groups.filter(is_known)["group_id"])
            self._seen[key] = seen
        groups = batch.groups.with_row_index("row").filter(~pl.col("group_id").is_in(list(seen)))
        if groups.is_empty():
            return False
        seen.update(groups["group_id"])
        # The rollouts name their groups by row, and some rows are gone.
        places = groups.select(pl.col("row").alias(GROUP)).with_row_index("new")
        rollouts = batch.rollouts.join(places, on=GROUP, maintain_order="left").drop(GROUP).rename({"new": GROUP})
        groups = groups.drop("row").with_columns(pl.lit(number, batch.groups.schema[RUN]).alias(RUN))
        if ledger not in self._ledgers:
            self._ledgers.append(ledger)
        self._parts.append(self._part(Batch(groups, rollouts), self._ledgers.index(ledger)))
        return True

    def _part(self, batch: Batch, ledger: int) -> _Part:
        # The columns of groups are those that the figures have, which cost no second memory.
        measured = self._reading.part(batch)
        kept = [name for name in dict.fromkeys((*_OF_GROUPS, *UNIT)) if name in measured.groups.columns]
        groups = measured.groups.select(kept).with_columns(
            *batch.groups.select(_TEXT_PLACE), pl.lit(ledger, pl.Int32).alias(_LEDGER)
        )
        return _Part(measured, groups, batch.rollouts.select(GROUP, *_OF_ROLLOUTS).cast(_SMALL))

    def _show(self, *, is_whole: bool) -> None:
        """Make the figures of what has been read."""
        start = time.process_time()  # of all threads: polars has its own
        batches = [part.measured for part in self._parts]
        if not any(part.groups["solve_rate:count"].sum() for part in batches):
            if is_whole:
                self._reading.measured(batches, self._dump)  # says why there is nothing
            return
        measured = self._reading.measured(batches, self._dump, self._repeated())
        # While the dump is being read, nothing else can be asked of it.
        dump, numbers = Dump(()), {}
        if is_whole:
            is_followed = len(self._ledgers) > 1
            numbers = step_numbers(self._texts.all_attempts() if is_followed else self._dump)
            dump = self._dump
        summary = summarize(dump, measured, numbers, texts=False)
        self.summary, self.version = summary_json(summary), self.version + 1
        self._has_more = False
        self._figures_after = time.monotonic() + _SHARE * (time.process_time() - start)

    def _repeated(self) -> list[int]:
        """Return the numbers of the runs with several attempts."""
        attempts = pl.concat(part.groups.select(RUN, "attempt").unique() for part in self._parts).unique()
        return attempts.group_by(RUN).len().filter(pl.col("len") > 1)[RUN].to_list()

    def _number(self) -> int:
        """Return the number of groups that no later attempt replaced."""
        parts = list(self._parts)
        read = number = _height(parts)
        # Counted once, because every open page asks again and again.
        if self._counted[0] != read:
            if repeated := self._repeated():
                number = in_order(pl.concat(part.groups for part in parts), repeated).height
            self._counted = read, number
        return self._counted[1]

    # -- what the page asks

    def state(self) -> dict[str, Any]:
        """Return how far everything was read."""
        self._asked = time.monotonic()
        return {
            "version": self.version,
            "groups": self._number(),
            "read": self.read,
            "left": self.left,
            "renumbered": self.renumbered,
            "problem": self.problem,
            "running": list(self._states.values()).count(State.RUNNING),
        }

    def find(self, where: str, text: str, first: int, count: int) -> dict[str, Any]:
        """Return some of the groups that match, without their responses.

        Args:
            where: a condition, "" for none; `text`: must be in a message.
            first, count: which of them.

        Returns:
            `total` of those that were found, of as many as there are (`of`), `left` to be searched for the text, and
            `rows`.

        Raises:
            ConditionError: the condition is invalid.
        """
        with self._finding:
            found = self._found_for(where, text)
            self._test(found)
            left = self._search(found)
            places = found.hits[first : first + count]
            rows = [_row(group) for group in self._groups(places)]
            known = self._number()
        return {"total": len(found.hits), "of": known, "left": left, "rows": rows}

    def group(self, run_id: str, group_id: str) -> Group | None:
        """Return a group with its text; None if there is none."""
        start = 0
        for part in list(self._parts):
            found = part.groups.select(is_it=(pl.col("group_id") == group_id) & (pl.col("run_id") == run_id))["is_it"]
            if found.any():
                group = next(self._groups([start + int(found.arg_max() or 0)]), None)
                if group is not None:
                    add_advantages([group], trained_on(self._texts.runs, run_id, group_id))
                return group
            start += part.groups.height
        return None

    def _found_for(self, where: str, text: str) -> _Found:
        key = f"{where}\0{text}"
        if key not in self._found:
            # Before the key is kept, because an invalid one raises.
            condition = parse_condition(where) if where else None
            if len(self._found) > 8:  # the oldest goes
                del self._found[next(iter(self._found))]
            self._found[key] = _Found(condition, Query("", text))
        return self._found[key]

    def _test(self, found: _Found) -> None:
        """Test the condition on the parts that came since."""
        parts = list(self._parts)
        if found.condition and not _TESTABLE.issuperset(found.condition.columns):
            self._test_in_files(found, found.condition)
            return
        start = _height(parts[: found.parts])
        for part in parts[found.parts :]:
            found.tested += (_matching(part, found.condition) + start).to_list()
            start += part.groups.height
        found.parts = len(parts)
        if repeated := self._repeated() if parts else []:
            groups = pl.concat(part.groups for part in parts).with_row_index("place")
            kept = set(in_order(groups, repeated)["place"])
            found.searched = sum(place in kept for place in found.tested[: found.searched])
            found.hits = [place for place in found.hits if place in kept]
            found.tested = [place for place in found.tested if place in kept]

    def _test_in_files(self, found: _Found, condition: Condition) -> None:
        """Test a condition on columns that are not held, by reading the ledger, once."""
        if found.parts:
            return
        names = self._texts.scan().filter(condition.test).select("run_id", "group_id").unique().collect()
        start = 0
        for part in self._parts:
            ours = part.groups.select(pl.col("run_id", "group_id").cast(pl.String)).with_row_index("place")
            rows = ours.join(names, on=("run_id", "group_id"), how="semi", maintain_order="left")["place"]
            found.tested += (rows + start).to_list()
            start += part.groups.height
        found.parts = len(self._parts)

    def _search(self, found: _Found) -> int:
        """Search the texts for a while; returns how many groups are left."""
        if not found.query.text:
            found.hits, found.searched = found.tested, len(found.tested)
            return 0
        end = time.monotonic() + SEARCH_SECONDS
        for place, row in self._rows(found.tested[found.searched :]):
            group = self._text(row)
            if group is not None and found.query.matches_text(group):
                found.hits.append(place)
            found.searched += 1
            if time.monotonic() > end:
                break
        return len(found.tested) - found.searched

    def _rows(self, places: Sequence[int]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the rows of groups, which are in order."""
        start, number = 0, 0
        parts = list(self._parts)
        for place in places:
            while place >= start + parts[number].groups.height:
                start += parts[number].groups.height
                number += 1
            yield place, parts[number].groups.row(place - start, named=True)

    def _text(self, row: dict[str, Any]) -> GroupRecord | None:
        if not row["text"]:
            return None
        place = None
        if row["text_file"] is not None and row["text_at"] is not None:
            place = row["text"], row["text_file"], row["text_at"]
        return self._texts.text(row["run_id"], row["group_id"], place)

    def _groups(self, places: Sequence[int]) -> Iterator[Group]:
        """Yield groups with their texts, those without a text from the ledger."""
        for _, row in self._rows(places):
            record = self._text(row)
            # Most have a text, which says everything that the ledger says.
            if record is not None:
                yield recorded_group(record, row["solved_at"])
                continue
            ledger = self._ledgers[row[_LEDGER]]
            dump = self._dump if ledger is None else Dump((ledger,))  # its file may have been renamed since
            names = pl.DataFrame({"run_id": [row["run_id"]], "group_id": [row["group_id"]]})
            yield from ledger_groups(dump, names)


def _ledger_sizes(runs: Sequence[Run]) -> Iterator[tuple[tuple[str, str, int], int]]:
    """Yield the size of each file that figures are read from."""
    for run in runs:
        for file in run.files_of(*run.kinds_for_frames(texts=False)):
            with suppress(OSError):
                yield (run.run_id, file.kind.value, file.batch), file.path.stat().st_size


def _states_of(runs: Sequence[Run]) -> dict[str, State]:
    return {run.run_id: run.state() for run in runs}


def _height(parts: Sequence[_Part]) -> int:
    """Return the number of groups in parts."""
    return sum(part.groups.height for part in parts)


def _matching(part: _Part, condition: Condition | None) -> pl.Series:
    """Return the rows of the groups of which a rollout meets the condition."""
    if condition is None:
        return pl.int_range(part.groups.height, eager=True)
    # Words are held as numbers, of which SQL knows nothing.
    rows = named(Batch(part.groups, part.rollouts).rows([GROUP, *condition.columns]))
    return rows.filter(condition.test)[GROUP].unique().sort().cast(pl.Int64)


_OF_ROW = ("run_id", "group_id", "task", "phase", "environment", "step", "outcome", "solved_at", "text_reason")


_OF_SQUARE = ("base_score", "violation", "status")


def _row(group: Group) -> Group:
    """Return what the list shows of a group."""
    row = {name: group[name] for name in _OF_ROW if name in group}
    # The last one is the question.
    for message in group.get("prompt", ()):
        if message["role"] != "system":
            row["asked"] = message["content"]
    row["rollouts"] = []
    for rollout in group["rollouts"]:
        row["rollouts"].append({name: rollout[name] for name in _OF_SQUARE})
    return row
