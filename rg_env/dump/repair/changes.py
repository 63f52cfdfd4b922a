"""The changes that a repair made to a run.

Invariant: every difference between the copy and the original is reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rg_env.dump.repair.findings import Findings, Kind


class Change(Kind):
    """A difference between the copy and the original."""

    SAVED = "saved"
    """Whole records were extracted from a damaged line."""
    DAMAGED = "damaged"
    """A part of a line belongs to no whole record, or a text contradicts its ledger line and the run's settings."""
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


@dataclass
class Recovery:
    """The result for one run.

    Attributes:
        texts, ledger_lines, trained, levels: lines in the copy.
        damaged_texts, damaged_ledger: damaged parts of text and ledger files that contain no whole record.
    """

    run_id: str
    texts: int = 0
    ledger_lines: int = 0
    trained: int = 0
    levels: int = 0
    changes: Findings[Change] = field(default_factory=Findings)
    damaged_texts: int = 0
    damaged_ledger: int = 0

    @property
    def lost(self) -> int:
        """Known permanent losses: texts, groups, and damaged lines.

        A damaged ledger line that was made again from the text is not a loss. A damaged text that the ledger still
        lists is counted once.
        """
        counts = self.changes.counts
        texts = max(self.damaged_texts, counts[Change.TEXT_LOST])
        ledger = max(0, self.damaged_ledger - counts[Change.LEDGER_MADE])
        return texts + ledger + sum(counts[kind] for kind in _LOSSES)


_LOSSES = (Change.UNREADABLE, Change.UNKNOWN_GROUP, Change.MANIFEST_LOST)
