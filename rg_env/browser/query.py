"""The filter of groups: conditions as for `--where`, and a text to search for.

Invariant: conditions mean the same as in statistics. A group is shown, with all its rollouts, if statistics with these
conditions count one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from rg_env.choices import SortBy
from rg_env.dump import Dump, GroupRecord
from rg_env.dump.frames import parse_condition
from rg_env.dump.reader import TextIndex
from rg_env.scoring.types import UNCOUNTED

SCORE = pl.when(pl.col("status").is_in(UNCOUNTED).fill_null(False).not_()).then("base_score")
"""The base score of a rollout; null where there was no response."""
SORTED_BY = {
    SortBy.SCORE: SCORE.mean(),
    SortBy.LENGTH: pl.col("response_tokens").mean(),
    SortBy.SPREAD: SCORE.max() - SCORE.min(),
}
"""Of the rollouts of a group."""
_TEXT = "/"
_LINE = re.compile(r"((?:'[^']*'?|[^'])*?)(?:(?:^|(?<=\s))/(?!\s)(.*))?", re.DOTALL)
"""A condition, and a slash and a text: a slash at the start of a word and outside of quotes, so no division."""


@dataclass(frozen=True, slots=True)
class Query:
    """A filter of groups.

    Attributes:
        conditions: see `parse_condition`; those on rollouts must hold for the same rollout.
        text: must occur in a message of the group, ignoring case; empty to match all groups.

    Raises:
        ConditionError: an invalid condition.
    """

    conditions: tuple[str, ...] = ()
    text: str = ""

    def __post_init__(self) -> None:
        for condition in self.conditions:
            parse_condition(condition)

    @classmethod
    def parse(cls, line: str) -> Query:
        """Parse a line such as `task = 'gcd' AND step > 10 /some words`: a condition, a text to search for, or both.

        Raises:
            ConditionError: as the class.
        """
        match = _LINE.fullmatch(line)
        assert match is not None, "everything is optional"
        return cls((match[1].strip(),) if match[1].strip() else (), match[2] or "")

    def __str__(self) -> str:
        """The line that `parse` reads."""
        one = len(self.conditions) == 1
        condition = " AND ".join(text if one else f"({text})" for text in self.conditions)
        return " ".join([*([condition] if condition else []), *([_TEXT + self.text] if self.text else [])])

    def matching(self, dump: Dump, sort: SortBy | None = None) -> pl.DataFrame:
        """`run_id` and `group_id` of the groups that match, except for the text, sorted or in the order of the files.

        Raises:
            ConditionError: nothing matches.
        """
        rows = dump.where(self.conditions).scan().group_by("run_id", "group_id", maintain_order=True)
        groups = rows.agg(order=SORTED_BY[sort] if sort else pl.lit(None)).collect(engine="streaming")
        return groups.sort("order", descending=True, nulls_last=True, maintain_order=True).drop("order")

    def groups(self, dump: Dump, sort: SortBy | None = None) -> Iterator[GroupRecord]:
        """The groups that match and have a text, sorted or in the order of the files.

        Raises:
            ConditionError: nothing matches the conditions.
            DumpError: as `Dump.groups`.
        """
        groups: Iterator[GroupRecord] = dump.groups()
        if sort is not None:
            index = TextIndex(dump)
            found = (index.read(*names) for names in self.matching(dump, sort).iter_rows())
            groups = (group for group in found if group is not None)
        elif self.conditions:
            groups = dump.groups(ids=set(self.matching(dump)["group_id"]))
        return (group for group in groups if self.matches_text(group))

    def matches_text(self, group: GroupRecord) -> bool:
        """Whether a message of the group contains the text."""
        wanted = self.text.lower()
        return not wanted or any(
            wanted in message["content"].lower() for rollout in group.rollouts for message in rollout.conversation
        )
