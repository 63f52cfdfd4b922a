"""The trainer's end of one worker process: the jobs it gets, and how they are sent.

Invariant: after any exception the caller kills the worker, because a late reply could be taken for that to a later job.
"""

from __future__ import annotations

import hashlib
import math
import pickle
import select
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import clock_gettime, monotonic
from typing import Any

from rg_env.scoring.types import Form
from rg_env.scoring.workers.forkserver import ForkServer
from rg_env.scoring.workers.protocol import MAX_REPLY_BYTES, ProtocolError, decode_reply, recv_frame, send_frame

PREPARE_SECONDS = 30.0
_SHORTEST_WAIT, _LONGEST_WAIT = 0.01, 3600.0


@dataclass(frozen=True, slots=True)
class Job:
    """One answer to be scored.

    Attributes:
        scorer: pickled (task, options): what to score with.
        entry: pickled entry.
        calls_code: running the answer may call functions (`rg_env.scoring.guard.calls_code`), so its worker is not used
            again.
    """

    task: str
    scorer: bytes
    entry: bytes
    answer: str
    calls_code: bool

    @classmethod
    def of(cls, task: str, options: Mapping[str, Any], entry: Mapping[str, Any], answer: str, calls_code: bool) -> Job:
        return cls(task, pickle.dumps((task, dict(options))), pickle.dumps(dict(entry)), answer, calls_code)

    def digest(self) -> bytes:
        parts = (self.scorer, self.entry, self.answer.encode("utf-8", "surrogatepass"))
        return hashlib.blake2b(b"".join(hashlib.blake2b(part).digest() for part in parts), digest_size=16).digest()


class ScoringTimeoutError(TimeoutError):
    """No score within the limits.

    Attributes:
        cpu_seconds: CPU time that the worker used for the answer.
        asleep: it was neither computing nor waiting for a core or a disk.
    """

    def __init__(self, cpu_seconds: float, asleep: bool) -> None:
        super().__init__()
        self.cpu_seconds = cpu_seconds
        self.asleep = asleep


@dataclass(eq=False, slots=True)
class WorkerConnection:
    """One worker, from fork to kill.

    Attributes:
        prepared: the scorers that the worker has made ready.
        jobs: how many it was given.
        busy_since: when it was given a job that it has not replied to, on the clock of `time.monotonic`.
    """

    server: ForkServer
    sock: socket.socket
    pid: int
    prepared: set[bytes] = field(default_factory=set)
    jobs: int = 0
    busy_since: float | None = None
    _poll: select.poll = field(default_factory=select.poll)

    def __post_init__(self) -> None:
        self._poll.register(self.sock, select.POLLIN)

    def is_usable(self) -> bool:
        """Whether the worker is alive and silent. A worker without a job has nothing to send, so any byte is forged."""
        return not self._replies_by(0.0)

    def prepare(self, scorer: bytes, guarded: bool = True) -> str | None:
        """Make the worker prepare a scorer, if it has not yet. Returns the reason why that is impossible, or None.

        Args:
            guarded: the guard lets every answer pass that this worker gets.

        Raises:
            TimeoutError, EOFError, OSError, ProtocolError: kill the worker.
        """
        if scorer in self.prepared:
            return None
        deadline = monotonic() + PREPARE_SECONDS
        send_frame(self.sock, pickle.dumps((scorer, pickle.loads(scorer), guarded)), deadline)
        reason, _ = decode_reply(recv_frame(self.sock, MAX_REPLY_BYTES, deadline))
        if isinstance(reason, str):
            return reason
        self.prepared.add(scorer)
        return None

    def score(self, job: Job, cpu_seconds: float, wall_seconds: float) -> tuple[Form, Form]:
        """Have the answer scored, bare and tagged. The scorer must have been prepared.

        Args:
            cpu_seconds: CPU time that the worker may use, or wall time if it sleeps.
            wall_seconds: wall time that it may take in any case.

        Raises:
            ScoringTimeoutError, EOFError, OSError, ProtocolError: kill the worker.
        """
        self.jobs += 1
        self.busy_since = monotonic()
        end = self.busy_since + wall_seconds
        before = self._cpu_seconds()
        used = 0.0
        request = pickle.dumps((job.scorer, job.entry, job.answer))
        try:
            send_frame(self.sock, request, end)
        except TimeoutError:
            raise ScoringTimeoutError(self._cpu_seconds() - before, asleep=False) from None
        while not self._replies_by(min(end, monotonic() + max(_SHORTEST_WAIT, cpu_seconds - used))):
            used = self._cpu_seconds() - before
            asleep = self._is_asleep()
            if (asleep or used >= cpu_seconds or monotonic() >= end) and not self._replies_by(0.0):
                raise ScoringTimeoutError(used, asleep)
        try:  # a worker writes its reply at once
            forms = decode_reply(recv_frame(self.sock, MAX_REPLY_BYTES, monotonic()))
        except TimeoutError:
            raise ProtocolError("an incomplete reply") from None
        self.busy_since = None
        return forms

    def kill(self) -> None:
        """End the worker and everything in its process group. Never fails."""
        self.sock.close()
        self.server.kill(self.pid)

    def _replies_by(self, moment: float) -> bool:
        """Wait for a first byte or the end of the connection; False if neither comes until then."""
        seconds = min(max(0.0, moment - monotonic()), _LONGEST_WAIT)
        return bool(self._poll.poll(math.ceil(1000 * seconds)))

    def _cpu_seconds(self) -> float:
        """CPU time of the worker so far. Outside Linux it is unknown, and wall time takes its place."""
        # The clock of a process, as clock_getcpuclockid(3) returns it.
        return clock_gettime(~self.pid << 3 | 2) if sys.platform == "linux" else monotonic()

    def _is_asleep(self) -> bool:
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"
        except OSError:
            return False
