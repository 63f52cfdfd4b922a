"""What a run reports to the process that shows it: JSON lines in a file.

Invariant: a report is one append, so that several processes may send, and what has been sent survives a kill of the
sender. Sending never raises. The sender must be on the same machine as the reader, as the task of a run is
(`rg_env.skyrl.placement`).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from loguru import logger

if TYPE_CHECKING:
    from loguru import Message, Record

SCRATCH = "RG_ENV_SCRATCH"
"""Environment variable: the folder that the supervisor of this process removes at the end."""

Report = dict[str, Any]
"""`kind`, `time` (seconds since the epoch) and the facts of a report."""


@dataclass(frozen=True)
class Reports:
    """Sends reports. Picklable.

    Attributes:
        path: the file; None sends nothing.
    """

    path: Path | None = None

    @classmethod
    def of_this_process(cls) -> Self:
        """To the supervisor of this process, if it has one."""
        scratch = os.environ.get(SCRATCH)
        return cls(Path(scratch, "reports.jsonl") if scratch else None)

    def send(self, kind: str, **facts: Any) -> None:
        """Append a report."""
        if self.path is None:
            return
        line = json.dumps({"kind": kind, "time": time.time(), **facts}, default=str).encode() + b"\n"
        with contextlib.suppress(OSError):
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(file, line)
            finally:
                os.close(file)

    def phase(self, name: str) -> None:
        """The run begins something that takes a while."""
        self.send("phase", name=name)


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers among a trainer's metrics."""
    found = {key: float(value) for key, value in metrics.items() if isinstance(value, (int, float))}
    return {key: value for key, value in found.items() if math.isfinite(value)}


def report_warnings(reports: Reports, modules: tuple[str, ...] = ()) -> None:
    """Send warnings that are logged in this process, and all log lines of the user's modules."""

    def wanted(record: Record) -> bool:
        return record["level"].no >= logger.level("WARNING").no or (record["name"] or "").startswith(modules)

    def send(message: Message) -> None:
        reports.send("note", level=message.record["level"].name, text=message.record["message"])

    if reports.path is not None:
        logger.add(send, level="INFO", filter=wanted)


class Tail:
    """The lines appended to a file since they were last read. A line without its end waits."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def lines(self) -> list[bytes]:
        """The new lines; none while the file does not exist."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                whole, end, _ = file.read().rpartition(b"\n")
        except OSError:
            return []
        self._read += len(whole) + len(end)
        return whole.split(b"\n") if end else []


class Inbox(Tail):
    """The reports sent since they were last read."""

    def new(self) -> list[Report]:
        return [json.loads(line) for line in self.lines()]
