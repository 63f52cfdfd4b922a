"""The two scorers that the audit compares: reasoning-gym's own, and `rg_env`'s.

Invariant: neither lets an attack reach the calling process. The raw scorer runs in the same kind of worker, under the
same measures (`rg_env.scoring.sandbox`), but without anything else: no guard, no retry, no fresh process for the next
answer. The difference between the two columns of the audit is what `rg_env` adds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from rg_env.errors import ScorerPoolError
from rg_env.scoring import Scorer, Status
from rg_env.scoring.workers.checkout import WorkerPool
from rg_env.scoring.workers.connection import Job, ScoringTimeoutError, WorkerConnection
from rg_env.scoring.workers.protocol import ProtocolError

_MEMORY_BYTES = 1 << 30
_PATIENT_HANGS = 3
_IMPATIENT_SECONDS = 0.5


class Ending(StrEnum):
    """How one answer ended."""

    SCORED = "scored"
    REFUSED = "refused"
    RAISED = "raised"
    HUNG = "hung"
    DIED = "died"
    ESCAPED = "escaped"
    """The scorer raised an exception in the calling process."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one answer.

    Attributes:
        score: in [0, 1]; 0 unless SCORED.
        seconds: wall time of the call.
        grown_mb: growth of the scorer's process at its peak, in MiB; 0 if that is unknown.
    """

    ending: Ending
    score: float = 0.0
    detail: str = ""
    seconds: float = 0.0
    grown_mb: int = 0


class Side(Protocol):
    """A scorer under audit. `contains`: it isolates its processes itself, so only the results of its calls count."""

    contains: bool
    deadline: float

    def start(self, task: str) -> None:
        """Begin a task."""

    def ask(self, entry: Mapping[str, Any], answer: str) -> Outcome:
        """Have an answer scored. No answer can make it raise."""

    def renew(self) -> None:
        """Discard all effects that answers may have had on it."""


class RawSide:
    """reasoning-gym's scorer, in one process for all answers until it dies or `renew` is called."""

    contains = False

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self._workers = WorkerPool(1, _MEMORY_BYTES, int(deadline) + 1)
        self._worker: WorkerConnection | None = None
        self._task = ""
        self._hangs = 0

    def start(self, task: str) -> None:
        self.renew()
        self._task = task
        self._hangs = 0

    def ask(self, entry: Mapping[str, Any], answer: str) -> Outcome:
        began = time.monotonic()
        job = Job.of(self._task, {}, entry, answer, calls_code=False)
        worker = self._worker = self._worker or self._workers.check_out()
        try:
            worker.prepare(job.scorer, guarded=False)
        except (OSError, EOFError, ProtocolError) as error:
            raise ScorerPoolError(f"the audit's scorer process fails to start: {error}") from error
        before = _peak_mb(worker.pid)
        try:
            limit = self.deadline if self._hangs < _PATIENT_HANGS else _IMPATIENT_SECONDS
            raw, tagged = worker.score(job, limit, 4 * limit)
        except ScoringTimeoutError:
            self._hangs += 1
            grown = _peak_mb(worker.pid) - before
            self.renew()
            return Outcome(Ending.HUNG, seconds=time.monotonic() - began, grown_mb=grown)
        except (OSError, EOFError, ProtocolError) as error:
            self.renew()
            return Outcome(Ending.DIED, detail=str(error), seconds=time.monotonic() - began)
        seconds, grown = time.monotonic() - began, _peak_mb(worker.pid) - before
        if isinstance(raw, str):
            return Outcome(Ending.RAISED, 0.0, raw, seconds, grown)
        return Outcome(Ending.SCORED, raw if isinstance(tagged, str) else max(raw, tagged), "", seconds, grown)

    def renew(self) -> None:
        if self._worker is not None:
            self._workers.check_in(self._worker, keep=False)
        self._worker = None

    def close(self) -> None:
        self.renew()
        self._workers.close()


class OurSide:
    """`Scorer`, as training uses it."""

    contains = True
    _ENDINGS = {  # noqa: RUF012  (constant)
        Status.OK: Ending.SCORED,
        Status.REJECTED: Ending.REFUSED,
        Status.ERROR: Ending.RAISED,
        Status.TIMEOUT: Ending.HUNG,
        Status.CRASHED: Ending.DIED,
    }

    def __init__(self, scorer: Scorer, deadline: float) -> None:
        self._scorer = scorer
        self.deadline = deadline

    def start(self, task: str) -> None:
        pass

    def ask(self, entry: Mapping[str, Any], answer: str) -> Outcome:
        began = time.monotonic()
        try:
            scored = self._scorer.score(entry, answer)
        except ScorerPoolError:
            raise
        except Exception as error:
            return Outcome(Ending.ESCAPED, detail=f"{type(error).__name__}: {error}", seconds=time.monotonic() - began)
        return Outcome(self._ENDINGS[scored.status], scored.score, scored.detail, time.monotonic() - began)

    def renew(self) -> None:
        pass


def _peak_mb(pid: int) -> int:
    with suppress(OSError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) >> 10
    return 0


def is_touched(canary: str) -> bool:
    """Whether the canary exists; removes it."""
    with suppress(FileNotFoundError):
        if Path(canary).is_dir():
            Path(canary).rmdir()
        else:
            os.unlink(canary)  # noqa: PTH108  (it may be a link)
        return True
    return False
