"""Whether a process that missed its deadline was computing, or waiting for a free core.

Invariant: a process counts as starved only if the system reports it as runnable and it got less than half of a core in
the meantime. A process that sleeps is not starved. Without /proc, no process is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_LEAST_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Effort:
    """The state and CPU time of a process at one moment.

    Attributes:
        runnable: it was running or waiting for a core.
        cpu_seconds: CPU time since it started.
    """

    pid: int
    runnable: bool
    cpu_seconds: float

    @classmethod
    def of(cls, pid: int) -> Effort:
        """The process now. If that is unknown, it counts as sleeping."""
        try:
            state, *numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks = int(numbers[10]) + int(numbers[11])  # utime and stime
        except (OSError, ValueError, IndexError):
            return cls(pid, False, 0.0)
        return cls(pid, state == "R", ticks / os.sysconf("SC_CLK_TCK"))

    def starved_since(self, seconds: float) -> bool:
        """Whether the process was runnable at this moment, `seconds` ago, and is now, but got little CPU time since."""
        now = Effort.of(self.pid)
        return self.runnable and now.runnable and now.cpu_seconds - self.cpu_seconds < _LEAST_SHARE * seconds
