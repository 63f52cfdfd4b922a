"""The two scorers that are compared: reasoning-gym's own, and `rg_env`'s.

Invariant: neither lets an attack reach the process that asks. The raw scorer runs in a worker of the same fork server,
under the same measures (`rg_env.scoring.sandbox`), but with nothing before or after it: no guard, no retry, no fresh
process for the next answer. What differs between the two columns of the audit is what `rg_env` adds.
"""

from __future__ import annotations

import os
import pickle
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from rg_env.errors import ScorerPoolError
from rg_env.scoring import Scorer, Status
from rg_env.scoring.workers.forkserver import ForkServer, ForkServerError
from rg_env.scoring.workers.protocol import MAX_REPLY_BYTES, ProtocolError, decode_reply, recv_frame, send_frame

_START_SECONDS = 120.0
_PREPARE_SECONDS = 30.0
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
    """An exception came out of the scorer into the process that asked."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One answer's.

    Attributes:
        score: in [0, 1]; 0 unless SCORED.
        seconds: wall time of the call.
        grown_mb: by how much the scorer's process grew at its peak, MiB; 0 where that is not known.
    """

    ending: Ending
    score: float = 0.0
    detail: str = ""
    seconds: float = 0.0
    grown_mb: int = 0


class Side(Protocol):
    """A scorer under audit. `contains`: its processes are its own business, so that only what comes out counts."""

    contains: bool
    deadline: float

    def start(self, task: str) -> None:
        """Begin a task."""

    def ask(self, entry: Mapping[str, Any], answer: str) -> Outcome:
        """Have an answer scored. Raises nothing that an answer can cause."""

    def renew(self) -> None:
        """Forget what answers may have done to it."""


class RawSide:
    """reasoning-gym's scorer, one process for all answers until it dies or `renew` is called."""

    contains = False

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self._server: ForkServer | None = None
        self._worker: tuple[socket.socket, int] | None = None
        self._task = b""
        self._hangs = 0

    def start(self, task: str) -> None:
        self.renew()
        self._task = pickle.dumps((task, {}))
        self._hangs = 0

    def ask(self, entry: Mapping[str, Any], answer: str) -> Outcome:
        began = time.monotonic()
        sock, pid = self._worker = self._worker or self._fork()
        before = _peak_mb(pid)
        deadline = time.monotonic() + (self.deadline if self._hangs < _PATIENT_HANGS else _IMPATIENT_SECONDS)
        try:
            send_frame(sock, pickle.dumps((self._task, pickle.dumps(dict(entry)), answer)), deadline)
            forms = decode_reply(recv_frame(sock, MAX_REPLY_BYTES, deadline))
        except TimeoutError:
            self._hangs += 1
            grown = _peak_mb(pid) - before
            self.renew()
            return Outcome(Ending.HUNG, seconds=time.monotonic() - began, grown_mb=grown)
        except (OSError, EOFError, ProtocolError) as error:
            self.renew()
            return Outcome(Ending.DIED, detail=str(error), seconds=time.monotonic() - began)
        seconds, grown = time.monotonic() - began, _peak_mb(pid) - before
        if isinstance(forms[0], str):
            return Outcome(Ending.RAISED, 0.0, forms[0], seconds, grown)
        return Outcome(Ending.SCORED, max(f for f in forms if not isinstance(f, str)), "", seconds, grown)

    def renew(self) -> None:
        if self._worker is not None and self._server is not None:
            sock, pid = self._worker
            sock.close()
            self._server.kill(pid)
        self._worker = None

    def close(self) -> None:
        self.renew()
        if self._server is not None:
            self._server.close()

    def _fork(self) -> tuple[socket.socket, int]:
        for last in (False, True):
            try:
                if self._server is None:
                    self._server = ForkServer(_START_SECONDS)
                sock, pid = self._server.fork(_MEMORY_BYTES, int(self.deadline) + 1)
                deadline = time.monotonic() + _PREPARE_SECONDS
                send_frame(sock, pickle.dumps((self._task, pickle.loads(self._task))), deadline)
                decode_reply(recv_frame(sock, MAX_REPLY_BYTES, deadline))
                return sock, pid
            except (ForkServerError, OSError, EOFError) as error:
                if self._server is not None:
                    self._server.close()
                    self._server = None
                if last:
                    raise ScorerPoolError(f"the audit's scorer processes fail to start: {error}") from error
        raise AssertionError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class OurSide:
    """`Scorer`, as training uses it."""

    contains = True
    _ENDINGS = {  # noqa: RUF012  (never changed)
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
    """Whether somebody made the canary; removes it."""
    with suppress(FileNotFoundError):
        if Path(canary).is_dir():
            Path(canary).rmdir()
        else:
            os.unlink(canary)  # noqa: PTH108  (a link too)
        return True
    return False
