"""What waits to be written: jobs as they were submitted, and slices of them that are committed together.

Invariant: a job's records leave it from the left once they are on disk, so that what is left in it is what is missing.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Self

from rg_env.dump.codec import to_line
from rg_env.dump.schema import FileKind, GroupRecord, LedgerRecord, TrainedRecord
from rg_env.dump.write.routing import DumpPolicy, route

Record = GroupRecord | TrainedRecord


@dataclass(slots=True, eq=False)
class Job:
    """Records that were submitted together.

    Attributes:
        records: those that are not on disk yet, in order.
        size: about how much memory all of them take, in bytes.
        whole: False once one of them had to be left out.
        on_disk: what the submitter waits for.
    """

    records: deque[Record]
    size: int
    whole: bool = True
    on_disk: Future[bool] = field(default_factory=Future)

    @classmethod
    def of(cls, records: Iterable[Record]) -> Self:
        """A job of these records."""
        waiting = deque(records)
        return cls(waiting, sum(map(_size, waiting)))

    def settle(self, result: bool) -> None:
        """Answer the submitter, if that has not been done yet."""
        if not self.on_disk.done():
            self.on_disk.set_result(result)


@dataclass(slots=True)
class Slice:
    """Consecutive records that are committed together, because no batch is full before the last of them.

    Attributes:
        lines: by the kind of their file, in the order in which the files are written: a group's text, then its line in
            the ledger.
        records: how many.
    """

    lines: dict[FileKind, list[bytes]] = field(default_factory=lambda: {kind: [] for kind in FileKind})
    records: int = 0

    def add(self, record: Record, policy: DumpPolicy) -> None:
        """Make the record's lines.

        Raises:
            Exception: it cannot be written as JSON; the slice is as it was.
        """
        if isinstance(record, TrainedRecord):
            self.lines[FileKind.TRAINED].append(to_line(record))
        else:
            kind, reason = route(record, policy)
            text = to_line(record) if kind is not None else b""
            ledger = to_line(LedgerRecord.of(record, kind, reason))
            if kind is not None:
                self.lines[kind].append(text)
            self.lines[FileKind.LEDGER].append(ledger)
        self.records += 1


def _size(record: Record) -> int:
    if isinstance(record, TrainedRecord):
        return 500
    texts = sum(sys.getsizeof(message["content"]) for rollout in record.rollouts for message in rollout.conversation)
    return 1000 + sys.getsizeof(record.entry) + 500 * len(record.rollouts) + texts
