"""Which groups to show: one small language for the command line's options and the browser's filter line.

Invariant: a word means the same in both; a query is a condition on the rows of the index, and one on the text for those
that pass.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from rg_env.dump.schema import GroupRecord, Outcome, Phase
from rg_env.errors import DumpError
from rg_env.scoring.types import Violation

if TYPE_CHECKING:
    import polars as pl

KEYS = ("task", "outcome", "violation", "phase", "step", "score")
ANY = "any"
ALLOWED: dict[str, tuple[str, ...]] = {
    "outcome": tuple(Outcome),
    "violation": (ANY, *Violation),
    "phase": tuple(Phase),
}


@dataclass(frozen=True, slots=True)
class Query:
    """What a group has to be to be shown. Empty strings ask for nothing.

    Attributes:
        task: names and patterns (`*`, `?`) with commas between; one has to fit.
        outcome: outcomes with commas between.
        violation: violations with commas between, of which a rollout has one, or `any`.
        phase: `train` or `eval`.
        step: `7`, `3-9`, `3-` or `-9`, both ends included.
        score: the group's mean base score, likewise: `0.2-0.8`.
        text: what a message of the group contains, in whatever case.

    Raises:
        DumpError: a value that can fit nothing, with those that can.
    """

    task: str = ""
    outcome: str = ""
    violation: str = ""
    phase: str = ""
    step: str = ""
    score: str = ""
    text: str = ""

    def __post_init__(self) -> None:
        for key, allowed in ALLOWED.items():
            for value in _words(getattr(self, key)):
                if value not in allowed:
                    raise DumpError(f"{key} {value!r}: use one of {', '.join(allowed)}")
        for key in ("step", "score"):
            _range(key, getattr(self, key))

    @classmethod
    def parse(cls, line: str) -> Query:
        """The query in a line such as `task:gcd outcome:mixed step:10-20 some words`.

        Words that begin with no key, and everything from the first of them on, are the text to look for.

        Raises:
            DumpError: as the class.
        """
        query = cls()
        rest = line.strip()
        while rest:
            word, _, after = rest.partition(" ")
            key, colon, value = word.partition(":")
            if not colon or key not in KEYS:
                break
            query = replace(query, **{key: value})
            rest = after.lstrip()
        return replace(query, text=rest)

    def __str__(self) -> str:
        """The line that `parse` reads."""
        words = [f"{key}:{value}" for key in KEYS if (value := getattr(self, key))]
        return " ".join([*words, *([self.text] if self.text else [])])

    def fits(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows of the index that fit, but for the text. Damaged lines never do."""
        import polars as pl

        rows = rows.filter(pl.col("problem").is_null())
        if patterns := _words(self.task):
            rows = rows.filter(pl.col("task").is_in(_matching(rows["task"].unique(), patterns)))
        if outcomes := _words(self.outcome):
            rows = rows.filter(pl.col("outcome").is_in(outcomes))
        if violations := _words(self.violation):
            wanted = list(Violation) if ANY in violations else violations
            rows = rows.filter(pl.col("violations").list.eval(pl.element().is_in([str(v) for v in wanted])).list.any())
        if phases := _words(self.phase):
            rows = rows.filter(pl.col("phase").is_in(phases))
        for key, column in (("step", "step"), ("score", "mean")):
            if text := getattr(self, key):
                low, high = _range(key, text)
                rows = rows.filter(pl.col(column).is_between(low, high))
        return rows

    def fits_text(self, group: GroupRecord) -> bool:
        """Whether a message of the group contains the text."""
        wanted = self.text.lower()
        return not wanted or any(
            wanted in message["content"].lower() for rollout in group.rollouts for message in rollout.conversation
        )

    def may_fit_line(self, line: bytes) -> bool:
        """False only where `fits_text` cannot be true of the group in a line: spares taking most lines apart."""
        if not _IS_WRITTEN_AS_IT_IS.fullmatch(self.text) or self.text.lower().encode() in line.lower():
            return True
        line = line.replace(b"\\\\", b"")  # of the backslashes that are left, each begins an escape
        return any(other in line for other in _OTHER_SPELLINGS)


_IS_WRITTEN_AS_IT_IS = re.compile(r"[ !#-.0-\[\]-~]*")
"""ASCII that no writer of JSON escapes."""
_OTHER_SPELLINGS = (b"\\u", "\u0130".encode(), "\u212a".encode())
"""What may stand for ASCII letters: escapes, and the two other characters that have ASCII letters in lower case."""


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _matching(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _range(key: str, text: str) -> tuple[float, float]:
    low, dash, high = text.partition("-")
    try:
        ends = (float(low) if low else -math.inf, float(high if dash else low) if high or not dash else math.inf)
    except ValueError:
        ends = (math.nan, math.nan) if text else (-math.inf, math.inf)
    if text and (text == "-" or not ends[0] <= ends[1]):
        raise DumpError(f"{key} {text!r}: a number, or a range such as 3-9, 3- or -9")
    return ends
