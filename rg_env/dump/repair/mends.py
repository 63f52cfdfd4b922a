"""What mending a record did to it, as a closed set of kinds.

Invariant: whatever a copy has otherwise than the original is noted; the list is bounded, the counts are not.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from rg_env.dump.repair.findings import MAX_KEPT


class Mend(StrEnum):
    """Something that the copy has otherwise than the original."""

    SAVED = "saved"
    """Whole records were taken out of a damaged line."""
    DAMAGED = "damaged"
    """A part of a line belongs to no whole record."""
    LINE_FEED = "line_feed_added"
    UNREADABLE = "unreadable"
    """The rest of a file could not be read."""
    DUPLICATE = "duplicate_dropped"
    LEDGER_MADE = "ledger_line_made"
    LEDGER_REPLACED = "ledger_line_replaced"
    TEXT_LOST = "text_lost"
    UNKNOWN_GROUP = "unknown_group_dropped"
    """A step was trained on a group of which nothing else is left."""
    RENAMED = "renamed"
    EMPTY = "empty_file_dropped"
    MANIFEST_LOST = "manifest_lost"


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that was mended, or could not be.

    Attributes:
        line: in the damaged file, from 1; 0 where it is about the whole file.
    """

    mend: Mend
    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.what}" if self.line else f"{self.file}: {self.what}"


@dataclass
class Recovery:
    """What became of one run.

    Attributes:
        texts, ledger_lines, trained: lines in the copy.
        notes: `MAX_KEPT` at most; `counts` counts all.
        damaged_texts, damaged_ledger: damaged places in files of either kind that gave no whole record.
    """

    run_id: str
    texts: int = 0
    ledger_lines: int = 0
    trained: int = 0
    notes: list[Note] = field(default_factory=list)
    counts: Counter[Mend] = field(default_factory=Counter)
    damaged_texts: int = 0
    damaged_ledger: int = 0

    @property
    def changed(self) -> bool:
        return bool(self.counts)

    @property
    def lost(self) -> int:
        """Losses for good, as far as they can be known: texts, groups, lines of damage that nothing accounts for.

        A damaged line of the ledger is no loss where a line was made anew, a damaged text is counted once where the
        ledger still names it.
        """
        texts = max(self.damaged_texts, self.counts[Mend.TEXT_LOST])
        ledger = max(0, self.damaged_ledger - self.counts[Mend.LEDGER_MADE])
        others = (Mend.UNREADABLE, Mend.UNKNOWN_GROUP, Mend.MANIFEST_LOST)
        return texts + ledger + sum(self.counts[mend] for mend in others)

    def note(self, mend: Mend, file: str, line: int, what: str) -> None:
        self.counts[mend] += 1
        if len(self.notes) < MAX_KEPT:
            self.notes.append(Note(mend, file, line, what))
