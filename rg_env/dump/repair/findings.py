"""What is wrong with a record, as a closed set of kinds with the same advice wherever they are met.

Invariant: a list of findings is bounded, however broken the record is; what does not fit is counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

MAX_KEPT = 1000
"""Findings that are listed one by one."""

_RECOVER = "`rg-env dumps recover` writes a copy without it"
_ASK = "find out who changed the files; `rg-env dumps replay` shows what the numbers would be"


class Trouble(StrEnum):
    """A kind of finding."""

    DAMAGED = "damaged_line"
    CONTRADICTION = "contradiction"
    DUPLICATE = "duplicate"
    ORDER = "order"
    NO_LEDGER_LINE = "no_ledger_line"
    NO_TEXT = "no_text"
    DISAGREEMENT = "disagreement"
    UNKNOWN_GROUP = "unknown_group"
    GAP = "gap"
    UNFINISHED = "unfinished"
    EMPTY = "empty_file"
    OVERFULL = "overfull"
    SETTINGS = "settings"
    WRONG_FILE = "wrong_file"
    MANIFEST = "manifest"
    REMARK = "remark"
    """Nothing is wrong; something could not be checked."""

    @property
    def advice(self) -> str:
        """What to do about it; empty for a remark."""
        return _ADVICE[self]


_ADVICE = {
    Trouble.DAMAGED: "`rg-env dumps recover` saves what is whole in it",
    Trouble.CONTRADICTION: _ASK,
    Trouble.DUPLICATE: _RECOVER,
    Trouble.ORDER: _ASK,
    Trouble.NO_LEDGER_LINE: "`rg-env dumps recover` makes it anew from the text",
    Trouble.NO_TEXT: "look for the missing file; `rg-env dumps recover` notes the text as lost",
    Trouble.DISAGREEMENT: "`rg-env dumps recover` makes the ledger's line anew from the text",
    Trouble.UNKNOWN_GROUP: _RECOVER,
    Trouble.GAP: "look for the missing file; `rg-env dumps recover` closes the gap",
    Trouble.UNFINISHED: "resume the run, or use `rg-env dumps recover`",
    Trouble.EMPTY: _RECOVER,
    Trouble.OVERFULL: _ASK,
    Trouble.SETTINGS: "compare the manifest; were the settings or the files changed by hand?",
    Trouble.WRONG_FILE: "move the line to where it belongs, or give the file its old name",
    Trouble.MANIFEST: "take it from a backup; without it nothing is held against settings",
    Trouble.REMARK: "",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    Attributes:
        file: name of the file, or the run's id where it is about none.
        line: from 1; 0 where it is about the whole file.
    """

    trouble: Trouble
    file: str
    line: int
    what: str

    def __str__(self) -> str:
        place = f"{self.file}, line {self.line}" if self.line else self.file
        advice = self.trouble.advice
        return f"{place}: {self.what}" + (f" ({advice})" if advice else "")


@dataclass
class Findings:
    """The first findings one by one, and a count of all.

    Attributes:
        kept: `MAX_KEPT` at most, without remarks.
        counts: of all, by kind, without remarks.
    """

    kept: list[Finding] = field(default_factory=list)
    remarks: list[Finding] = field(default_factory=list)
    counts: dict[Trouble, int] = field(default_factory=dict)

    def add(self, trouble: Trouble, file: str, line: int, what: str) -> None:
        finding = Finding(trouble, file, line, what)
        if trouble is Trouble.REMARK:
            self.remarks.append(finding)
            return
        self.counts[trouble] = self.counts.get(trouble, 0) + 1
        if len(self.kept) < MAX_KEPT:
            self.kept.append(finding)

    @property
    def total(self) -> int:
        return sum(self.counts.values())
