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
from rg_env.dump.read.where import CONDITION, parse_conditions
from rg_env.scoring.types import UNCOUNTED

PLACE = ("run_id", "text", "text_batch", "text_offset")
"""Columns by which texts are read in the order of the files."""
SCORE = pl.when(pl.col("status").is_in(UNCOUNTED).fill_null(False).not_()).then("base_score")
"""The base score of a rollout; null where there was no response."""
SORTED_BY = {
    SortBy.SCORE: SCORE.mean(),
    SortBy.LENGTH: pl.col("response_tokens").mean(),
    SortBy.SPREAD: SCORE.max() - SCORE.min(),
}
"""Of the rollouts of a group."""
_WORD = re.compile(r"\s*((?:\\.|\S)+)", re.DOTALL)
_TEXT = "/"


@dataclass(frozen=True, slots=True)
class Query:
    """A filter of groups.

    Attributes:
        conditions: see `parse_conditions`; those on rollouts must hold for the same rollout.
        text: must occur in a message of the group, ignoring case; empty to match all groups.

    Raises:
        ConditionError: an invalid condition.
    """

    conditions: tuple[str, ...] = ()
    text: str = ""

    def __post_init__(self) -> None:
        parse_conditions(self.conditions)

    @classmethod
    def parse(cls, line: str) -> Query:
        r"""Parse a line such as `task=gcd step=10..20 some words`.

        Conditions come first; the text begins at the first word that is not a condition, or after a `/`. In a
        condition, a space is written `\ ` and a backslash `\\`.

        Raises:
            ConditionError: as the class.
        """
        conditions = []
        while word := _WORD.match(line):
            condition = re.sub(r"(?s)\\(.)", r"\1", word[1])
            if not CONDITION.fullmatch(condition):
                break
            conditions.append(condition)
            line = line[word.end() :]
        rest = line.lstrip()
        return cls(tuple(conditions), rest[1:] if rest.startswith(_TEXT) else rest.rstrip())

    def __str__(self) -> str:
        """The line that `parse` reads."""
        words = [re.sub(r"([\\\s])", r"\\\1", condition) for condition in self.conditions]
        return " ".join([*words, *([_TEXT + self.text] if self.text else [])])

    def places(self, dump: Dump, sort: SortBy | None = None) -> pl.DataFrame:
        """`group_id` and `PLACE` of the groups that match, except for the text, sorted or in the order of the files.

        Raises:
            ConditionError: nothing matches.
        """
        rows = dump.where(list(self.conditions)).scan().group_by("group_id", *PLACE, maintain_order=True)
        found = rows.agg(order=SORTED_BY[sort] if sort else pl.lit(None)).collect(engine="streaming")
        found = found.sort(PLACE, maintain_order=True).sort(
            "order", descending=True, nulls_last=True, maintain_order=True
        )
        return found.drop("order")

    def groups(self, dump: Dump, sort: SortBy | None = None) -> Iterator[GroupRecord]:
        """The groups that match and have a text, sorted or in the order of the files.

        Raises:
            ConditionError: nothing matches the conditions.
            DumpError: as `Dump.groups`.
        """
        groups = dump.texts_of(self.places(dump, sort)) if self.conditions or sort else dump.groups()
        return (group for group in groups if self.matches_text(group))

    def matches_text(self, group: GroupRecord) -> bool:
        """Whether a message of the group contains the text."""
        wanted = self.text.lower()
        return not wanted or any(
            wanted in message["content"].lower() for rollout in group.rollouts for message in rollout.conversation
        )
