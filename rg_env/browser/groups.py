"""Which groups of a dump are shown, in which order, and as text.

Invariant: a condition means the same as in statistics: a group is shown, with all its rollouts, if one of them meets
it, which statistics then count unless there was no response. A line of text has no escape sequence, and lines of
messages are indented by two spaces, so that no message looks like a heading. Groups whose text was not kept are not
shown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import polars as pl

from rg_env.choices import SortBy
from rg_env.dump import Dump, GroupRecord, RolloutRecord
from rg_env.dump.frames import parse_condition
from rg_env.dump.schema import RG_DUMP
from rg_env.output import counted, visible
from rg_env.scoring.types import UNCOUNTED, Status

_SCORE = pl.when(pl.col("status").is_in(UNCOUNTED).fill_null(False).not_()).then("base_score")
"""The base score of a rollout; null where there was no response."""
_SORTED_BY = {
    SortBy.SCORE: pl.col("mean"),
    SortBy.LENGTH: pl.col("length"),
    SortBy.SPREAD: pl.col("best") - pl.col("worst"),
}
_LINE = re.compile(r"((?:'[^']*'?|[^'])*?)(?:(?:^|(?<=\s))/(?!\s)(.*))?", re.DOTALL)
"""A condition, and a slash and a text: a slash at the start of a word and outside of quotes, so no division."""


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
        if self.condition:
            parse_condition(self.condition)

    @classmethod
    def parse(cls, line: str) -> Query:
        """Parse a line such as `task = 'gcd' AND step > 10 /some words`: a condition, a text to search for, or both."""
        match = _LINE.fullmatch(line)
        assert match is not None, "everything is optional"
        return cls(match[1].strip(), match[2] or "")

    def __str__(self) -> str:
        """The line that `parse` reads."""
        return f"{self.condition} /{self.text}".lstrip() if self.text else self.condition

    def rows(self, dump: Dump, sort: SortBy | None = None) -> pl.DataFrame:
        """A row for each group with a text, sorted or in the order of run, step and phase.

        `best`, `mean` and `worst` are base scores, `length` is in tokens, `troubles` are violations and each status
        other than ok, and `matches` says whether the group meets the condition.
        """
        violations = pl.col("violation").filter(pl.col("violation") != "").unique().sort()
        failures = pl.col("status").filter(pl.col("status") != Status.OK.value).unique().sort()
        groups = (
            dump.scan()
            .filter(pl.col("text") != "")
            .group_by("run_id", "group_id", maintain_order=True)
            .agg(
                pl.col("step", "phase", "task", "outcome").first(),
                best=_SCORE.max(),
                mean=_SCORE.mean(),
                worst=_SCORE.min(),
                troubles=violations.append(failures).str.join(" "),
                matches=parse_condition(self.condition).test.any() if self.condition else pl.lit(True),
                length=pl.col("response_tokens").mean(),
            )
            .collect(engine="streaming")
            .sort("run_id", "step", "phase", nulls_last=True, maintain_order=True)
        )
        if sort is None:
            return groups
        return groups.sort(_SORTED_BY[sort], descending=True, nulls_last=True, maintain_order=True)

    def groups(self, dump: Dump, sort: SortBy | None = None) -> Iterator[GroupRecord]:
        """The groups that match, sorted or in the order of run, step and phase."""
        rows = self.rows(dump, sort).filter("matches")
        names = rows.select("run_id", "group_id").rows()
        if not self.condition:  # of which a group that the ledger lacks has no row
            names.extend(dump.only_texts())
        for run_id, group_id in names:
            group = dump.text(run_id, group_id)
            if group is not None and self.matches_text(group):
                yield group

    def matches_text(self, group: GroupRecord) -> bool:
        """Whether a message of the group contains the text."""
        messages = (message for rollout in group.rollouts for message in rollout.conversation)
        return not self.text or any(self.text.lower() in message["content"].lower() for message in messages)


def ranked(group: GroupRecord) -> list[tuple[str, RolloutRecord]]:
    """The rollouts, each with a name of its place: best first by base score, score, absence of a violation, order of
    sampling; scores that are NaN last.
    """

    def key(rollout: RolloutRecord) -> tuple[float, ...]:
        numbers = [-number if number == number else 1.0 for number in (rollout.base_score, rollout.score)]
        return (*numbers, rollout.violation != "", rollout.repetition)

    count = len(group.rollouts)
    places = ["best", *(f"number {rank}" for rank in range(2, count)), "worst"][:count]
    rollouts = sorted(group.rollouts, key=key)
    return [(f"{place} of {count}", rollout) for place, rollout in zip(places, rollouts, strict=True)]


def prompt(group: GroupRecord) -> list[tuple[str, str]]:
    """Roles and contents of the messages before the response."""
    messages = group.rollouts[0].prompt if group.rollouts else []
    return [(message["role"], message["content"]) for message in messages]


def group_facts(group: GroupRecord, solved_at: float) -> str:
    """The origin of a group and its outcome."""
    best = max((rollout.base_score for rollout in group.rollouts), default=0.0)
    facts = [
        (f"step {'–' if group.step is None else group.step}", True),
        (group.phase, True),
        (group.task, True),
        (group.environment, group.environment not in (RG_DUMP, group.task)),
        (counted(len(group.rollouts), "rollout"), True),
        (group.outcome, True),
        (f"best {best:.3g}, none solved", 0 < best < solved_at),
        ("no signal", group.no_signal),
        (f"baseline {group.baseline:.3g}", group.baseline != 0),
        (f"expected {group.expected_answer}", group.expected_answer is not None),
    ]
    return _joined(facts)


def rollout_facts(rollout: RolloutRecord, group: GroupRecord) -> str:
    """The numbers of a rollout of a group."""
    raw = rollout.raw_score if group.baseline else None
    facts = [
        (f"base {rollout.base_score:.3g}", not math.isnan(rollout.base_score)),  # imports may have none
        (f"raw {raw or 0:.3g}", raw not in (None, rollout.base_score)),
        (f"penalty × {rollout.penalty_factor:.3g} = {rollout.score:.3g}", rollout.penalty_factor != 1),
        (f"reward {rollout.reward:.3g}", not math.isnan(rollout.reward)),
        (f"{rollout.response_tokens} tokens", rollout.response_tokens is not None),
        (counted(rollout.turns or 0, "turn"), rollout.turns is not None),
        ("empty response", rollout.status.is_counted and not rollout.response.strip()),
        ("cut off", rollout.truncated),
        (rollout.violation, rollout.violation != ""),
        (rollout.status, rollout.status is not Status.OK),
        (rollout.detail, rollout.detail != "" and rollout.status is not Status.OK),
    ]
    return _joined(facts)


def _joined(facts: Iterable[tuple[str, bool]]) -> str:
    return visible(" · ".join(text for text, is_shown in facts if is_shown), one_line=True)


def group_lines(
    group: GroupRecord, solved_at: float, *, every_rollout: bool = False, repetition: int | None = None
) -> Iterator[str]:
    """A group as plain text: its prompt, its best and its worst rollout.

    Args:
        solved_at: as `Dump.solved_at` says.
        every_rollout: all rollouts instead.
        repetition: only the rollout with this number instead.
    """
    yield f"== {visible(group.group_id, one_line=True)}"
    yield group_facts(group, solved_at)
    for role, content in prompt(group):
        yield f"-- {visible(role, one_line=True)}"
        yield from _indented(content)
    if repetition is not None and all(rollout.repetition != repetition for rollout in group.rollouts):
        yield f"-- this group has no rollout {repetition}"
    for place, rollout in ranked(group):
        is_shown = every_rollout or place.startswith(("best", "worst"))
        if is_shown if repetition is None else rollout.repetition == repetition:
            yield f"-- {place}: {rollout_facts(rollout, group)}"
            yield from _indented(rollout.transcript())
    yield ""


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in visible(text).split("\n")]
