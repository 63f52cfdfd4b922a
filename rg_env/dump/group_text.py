"""Which groups of a dump are shown, in which order, and as text.

Invariant: a condition means the same as in statistics: a group is shown, with all its rollouts, if one of them meets
it, which statistics then count unless there was no response. A line of text has no escape sequence, and lines of
messages are indented by two spaces, so that no message looks like a heading. Groups whose text was not kept are not
shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from rg_env.base.choices import SortBy
from rg_env.base.wording import counted, visible
from rg_env.dump import Dump, GroupRecord, RolloutRecord
from rg_env.dump.conditions import parse_condition
from rg_env.dump.frames import GROUP, SCHEMA, UNIT, Batch, in_order
from rg_env.dump.schema import RG_DUMP
from rg_env.scoring.types import UNCOUNTED, Status

_SCORE = pl.when(pl.col("status").is_in(UNCOUNTED).fill_null(False).not_()).then("base_score")
"""The base score of a rollout; null where there was no response."""
_SORTED_BY = {
    SortBy.SCORE: pl.col("mean"),
    SortBy.LENGTH: pl.col("length"),
    SortBy.SPREAD: pl.col("best") - pl.col("worst"),
}
_OF_ROWS = ("status", "base_score", "violation", "response_tokens")


@dataclass(frozen=True, slots=True)
class Query:
    """A filter of groups; a ConditionError if its condition is invalid.

    Attributes:
        condition: in SQL, see `parse_condition`; must hold for a rollout of the group. Empty to match all.
        text: must occur in a message of the group, ignoring case. Empty to match all.
    """

    condition: str = ""
    text: str = ""

    def __post_init__(self) -> None:
        # Parsed only to raise: an invalid condition is refused where it is typed.
        if self.condition:
            parse_condition(self.condition)

    def __str__(self) -> str:
        """The condition, and after a slash the text."""
        if self.text:
            return f"{self.condition} /{self.text}".lstrip()
        return self.condition

    def rows(self, dump: Dump, sort: SortBy | None = None) -> pl.DataFrame:
        """Return a row for each group with a text, sorted or in the order of run, step and phase.

        `best`, `mean` and `worst` are base scores, `length` is in tokens, `troubles` are violations and each status
        other than ok, and `matches` says whether the group meets the condition.
        """
        groups = self._rows(dump)
        groups = groups.sort("run_id", "step", "phase", nulls_last=True, maintain_order=True)
        if sort is None:
            return groups
        return groups.sort(_SORTED_BY[sort], descending=True, nulls_last=True, maintain_order=True)

    def _rows(self, dump: Dump) -> pl.DataFrame:
        """Return the rows in the order of reading."""
        # In a group, `violations` and `failures` are sorted lists of words.
        violations = pl.col("violation").filter(pl.col("violation") != "").unique().sort()
        failures = pl.col("status").filter(pl.col("status") != Status.OK.value).unique().sort()
        matches = pl.lit(True)
        tested: Sequence[str] = ()
        if self.condition:
            condition = parse_condition(self.condition)
            matches, tested = condition.test.any(), condition.columns
        figures = {
            "best": _SCORE.max(),
            "mean": _SCORE.mean(),
            "worst": _SCORE.min(),
            "troubles": violations.append(failures).str.join(" "),
            "matches": matches,
            "length": pl.col("response_tokens").mean(),
        }
        of_groups = ("run_id", "group_id", "step", "phase", "task", "outcome")
        kept = list(dict.fromkeys((*of_groups, *UNIT, "text")))
        columns = [name for name in dict.fromkeys((*kept, *_OF_ROWS, *tested)) if name in SCHEMA]

        def rows(batch: Batch) -> pl.DataFrame:
            every = batch.rows([*columns, GROUP])
            found = every.group_by(GROUP, maintain_order=True).agg(**figures)
            groups = batch.groups.select(kept).with_row_index(GROUP)
            return groups.join(found, on=GROUP, how="left", maintain_order="left")

        groups = in_order(pl.concat(dump.read_batches(columns, rows)), dump.repeated())
        # A group without rollouts has no row.
        found = groups.filter(pl.col("text") != "", pl.col("matches").is_not_null())
        return found.select(*of_groups, *figures)

    def groups(self, dump: Dump, sort: SortBy | None = None) -> Iterator[GroupRecord]:
        """Yield the groups that match, sorted or in the order of run, step and phase."""
        rows = self.rows(dump, sort).filter("matches")
        names = rows.select("run_id", "group_id").rows()
        # A group that the ledger lacks has no row, so no condition can be tested on it.
        if not self.condition:
            names.extend(dump.only_texts())
        for run_id, group_id in names:
            group = dump.text(run_id, group_id)
            if group is not None and self.matches_text(group):
                yield group

    def matches_text(self, group: GroupRecord) -> bool:
        """Return whether a message of the group contains the text."""
        sought = self.text.lower()
        if not sought:
            return True
        for rollout in group.rollouts:
            for message in rollout.conversation:
                if sought in message["content"].lower():
                    return True
        return False


def ranked(group: GroupRecord) -> list[tuple[str, RolloutRecord]]:
    """Return the rollouts, each with a name of its place: best first by base score, score, absence of a violation,
    order of sampling; scores that are NaN last.
    """

    def last_if_unknown(score: float) -> float:
        # NaN compares as neither less nor more and would leave the list unsorted.
        return math.inf if math.isnan(score) else -score

    def key(rollout: RolloutRecord) -> tuple[float, ...]:
        scores = last_if_unknown(rollout.base_score), last_if_unknown(rollout.score)
        return (*scores, rollout.violation != "", rollout.repetition)

    count = len(group.rollouts)
    # One rollout is only the best, two are the best and the worst.
    places = ["best", *(f"number {rank}" for rank in range(2, count)), "worst"][:count]
    rollouts = sorted(group.rollouts, key=key)
    return [(f"{place} of {count}", rollout) for place, rollout in zip(places, rollouts, strict=True)]


def prompt(group: GroupRecord) -> list[tuple[str, str]]:
    """Return the roles and contents of the messages before the response."""
    messages = group.rollouts[0].prompt if group.rollouts else []
    return [(message["role"], message["content"]) for message in messages]


def group_facts(group: GroupRecord, solved_at: float) -> str:
    """Return one line about a group: where it is from, and its outcome."""
    best = max((rollout.base_score for rollout in group.rollouts), default=0.0)
    step = "–" if group.step is None else group.step
    facts = [f"step {step}", group.phase, group.task]
    if group.environment not in (RG_DUMP, group.task):
        facts.append(group.environment)
    facts += [counted(len(group.rollouts), "rollout"), group.outcome]
    if 0 < best < solved_at:
        facts.append(f"best {best:.3g}, none solved")
    if group.no_signal:
        facts.append("no signal")
    if group.baseline != 0:
        facts.append(f"baseline {group.baseline:.3g}")
    if group.expected_answer is not None:
        facts.append(f"expected {group.expected_answer}")
    return _joined(facts)


def rollout_facts(rollout: RolloutRecord, group: GroupRecord, *, in_full: bool = False) -> str:
    """Return one line about a rollout of a group: its numbers, and what was wrong with it.

    Args:
        in_full: also the answer that was scored, both of its scores, what `scorer.normalize` removed from it, why the
            response ended, and whether it is trained on.
    """
    facts = [*_score_facts(rollout, group, in_full), *_response_facts(rollout)]
    if in_full and rollout.stop_reason:
        facts.append(f"stop reason {rollout.stop_reason}")
    if in_full and rollout.masked:
        facts.append("not trained on")
    if in_full and rollout.raw_score is not None:
        facts.append(f"answer {rollout.answer!r}")
        if rollout.normalized:
            facts.append(rollout.detail)
    if rollout.violation:
        facts.append(rollout.violation)
    if rollout.status is not Status.OK:
        facts.append(rollout.status)
        if rollout.detail:
            facts.append(rollout.detail)
    return _joined(facts)


def _score_facts(rollout: RolloutRecord, group: GroupRecord, in_full: bool) -> Iterator[str]:
    if not math.isnan(rollout.base_score):  # imports may have none
        yield f"base {rollout.base_score:.3g}"
    if in_full and rollout.raw_score is not None:
        yield f"raw {rollout.raw_score:.3g}, tagged {rollout.tagged_score:.3g}"
    elif group.baseline and rollout.raw_score not in (None, rollout.base_score):
        yield f"raw {rollout.raw_score:.3g}"
    if rollout.penalty_factor != 1:
        yield f"penalty × {rollout.penalty_factor:.3g} = {rollout.score:.3g}"
    if not math.isnan(rollout.reward):
        yield f"reward {rollout.reward:.3g}"


def _response_facts(rollout: RolloutRecord) -> Iterator[str]:
    if rollout.response_tokens is not None:
        yield f"{rollout.response_tokens} tokens"
    if rollout.turns is not None:
        yield counted(rollout.turns, "turn")
    if rollout.status.is_counted and not rollout.response.strip():
        yield "empty response"
    if rollout.truncated:
        yield "cut off"


def _joined(facts: Iterable[str]) -> str:
    """Return the facts in one line that is safe to print: a few of them were recorded from elsewhere."""
    return visible(" · ".join(facts), one_line=True)


def group_text(
    group: GroupRecord,
    solved_at: float,
    *,
    every_rollout: bool = False,
    repetition: int | None = None,
    in_full: bool = False,
    remark: str = "",
) -> str:
    """Return a group as plain text that is safe to print: its prompt, its best and its worst rollout. The last line is
    empty.

    Args:
        solved_at: as `Dump.solved_at` says.
        every_rollout: all rollouts instead.
        repetition: only the rollout with this number instead.
        in_full: as in `rollout_facts`.
        remark: below the facts of the group.
    """
    lines = [f"== {visible(group.group_id, one_line=True)}", group_facts(group, solved_at)]
    if remark:
        lines.append(remark)
    for role, content in prompt(group):
        lines += [f"-- {visible(role, one_line=True)}", _indented(content)]
    for place, rollout in ranked(group):
        # Of one rollout the place is `best of 1`, so that it is shown once.
        is_shown = every_rollout or place.startswith(("best", "worst"))
        if repetition is not None:
            is_shown = rollout.repetition == repetition
        if is_shown:
            lines += [f"-- {place}: {rollout_facts(rollout, group, in_full=in_full)}", _indented(rollout.transcript())]
    # The contents only now, all at once.
    return visible("\n".join([*lines, ""]))


def _indented(text: str) -> str:
    return "  " + text.replace("\n", "\n  ")
