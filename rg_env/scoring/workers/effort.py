"""Whether a process that is late was busy, or waited for a core that others had.

Invariant: only a process that the system says is runnable, and that got less than half of a core meanwhile, counts as
starved. One that sleeps is late by its own doing. Where there is no /proc, nobody is starved.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_LEAST_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Effort:
    """What a process had done at one moment.

    Attributes:
        runnable: it was running, or wanted to.
        cpu_seconds: processor time of its whole life.
    """

    pid: int
    runnable: bool
    cpu_seconds: float

    @classmethod
    def of(cls, pid: int) -> Effort:
        """Now; as one that sleeps where that cannot be known."""
        try:
            state, *numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks = int(numbers[10]) + int(numbers[11])  # utime and stime
        except (OSError, ValueError, IndexError):
            return cls(pid, False, 0.0)
        return cls(pid, state == "R", ticks / os.sysconf("SC_CLK_TCK"))

    def starved_since(self, seconds: float) -> bool:
        """Whether the process wanted to run ever since this moment, `seconds` ago, and mostly could not."""
        now = Effort.of(self.pid)
        return self.runnable and now.runnable and now.cpu_seconds - self.cpu_seconds < _LEAST_SHARE * seconds
