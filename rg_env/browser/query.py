"""The filter of groups: conditions as for `--where`, and a text to search for.

Invariant: conditions mean the same as in statistics. A group is shown if it matches the conditions on groups and one of
its rollouts matches all conditions on rollouts, that is, if statistics with these conditions count one of its rollouts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from rg_env.analysis.where import CONDITION, Condition, parse_conditions
from rg_env.browser.index import GROUP_SCORES, group_in, read_line
from rg_env.dump.files import DumpFile
from rg_env.dump.read.frames import SCHEMA
from rg_env.dump.schema import GroupRecord

COLUMNS = SCHEMA | GROUP_SCORES
"""The columns of conditions."""
_WORD = re.compile(r"\s*((?:\\.|\S)+)", re.DOTALL)
_TEXT = "/"


@dataclass(frozen=True, slots=True)
class Query:
    """A filter of groups.

    Attributes:
        conditions: see `parse_conditions`; those on rollouts must hold for the same rollout. The columns are the
            ledger's, and `best`, `mean` and `worst`: base scores of the group.
        text: must occur in a message of the group, ignoring case; empty to match all groups.

    Raises:
        ConditionError: an invalid condition.
    """

    conditions: tuple[str, ...] = ()
    text: str = ""

    def __post_init__(self) -> None:
        self.parsed()

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

    def parsed(self) -> list[Condition]:
        """The conditions, parsed."""
        return parse_conditions(self.conditions, COLUMNS)

    def without(self, column: str) -> Query:
        """The query without its conditions on a column."""
        return Query(tuple(condition.text for condition in self.parsed() if condition.column != column), self.text)

    def filter(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows of the index that match, except for the text. Damaged lines never match."""
        parsed = self.parsed()
        of_group = [condition.test for condition in parsed if not condition.splits_groups]
        of_rollout = [condition for condition in parsed if condition.splits_groups]
        rows = rows.filter(pl.col("problem").is_null(), *of_group)
        if not of_rollout:
            return rows
        columns = list({condition.column for condition in of_rollout})
        rollouts = rows.select(pl.int_range(pl.len()).alias("row"), *columns).filter(pl.col(columns[0]).list.len() > 0)
        found = rollouts.explode(columns).filter(*(condition.test for condition in of_rollout))["row"].unique().sort()
        return rows[found]

    def group_of(self, files: Sequence[DumpFile], row: Mapping[str, Any]) -> GroupRecord | None:
        """Read the group of a row; None if it does not contain the text.

        Raises:
            ChangedError, DumpError: as `read_row`.
        """
        line = read_line(files, row)
        if not self.may_match_line(line):
            return None
        group = group_in(line, files, row)
        return group if self.matches_text(group) else None

    def matches_text(self, group: GroupRecord) -> bool:
        """Whether a message of the group contains the text."""
        wanted = self.text.lower()
        return not wanted or any(
            wanted in message["content"].lower() for rollout in group.rollouts for message in rollout.conversation
        )

    def may_match_line(self, line: bytes) -> bool:
        """False only if `matches_text` cannot be true for the group in a line; avoids parsing most lines."""
        if not _UNESCAPED.fullmatch(self.text) or self.text.lower().encode() in line.lower():
            return True
        line = line.replace(b"\\\\", b"")  # each remaining backslash begins an escape
        return any(other in line for other in _OTHER_SPELLINGS)


_UNESCAPED = re.compile(r"[ !#-.0-\[\]-~]*")
"""ASCII that no writer of JSON escapes."""
_OTHER_SPELLINGS = (b"\\u", "\u0130".encode(), "\u212a".encode())
"""Other spellings of ASCII letters: escapes, and two characters whose lower case is an ASCII letter."""
