"""The trainer's end of one worker process: the jobs it gets, and how they are sent.

Invariant: after any exception the caller kills the worker, because a late reply could be taken for that to a later job.
"""

from __future__ import annotations

import hashlib
import pickle
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from rg_env.scoring.types import Form
from rg_env.scoring.workers.effort import Effort
from rg_env.scoring.workers.forkserver import ForkServer
from rg_env.scoring.workers.protocol import MAX_REPLY_BYTES, decode_reply, recv_frame, send_frame

PREPARE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Job:
    """One answer to be scored.

    Attributes:
        scorer: pickled (task, options): what to score with.
        entry: pickled entry.
        runs_code: the task's scorer evaluates the answer, so its worker is not used again.
    """

    task: str
    scorer: bytes
    entry: bytes
    answer: str
    runs_code: bool

    @classmethod
    def of(cls, task: str, options: Mapping[str, Any], entry: Mapping[str, Any], answer: str, runs_code: bool) -> Job:
        return cls(task, pickle.dumps((task, dict(options))), pickle.dumps(dict(entry)), answer, runs_code)

    def digest(self) -> bytes:
        parts = (self.scorer, self.entry, self.answer.encode("utf-8", "surrogatepass"))
        return hashlib.blake2b(b"".join(hashlib.blake2b(part).digest() for part in parts), digest_size=16).digest()


class ScoringTimeoutError(TimeoutError):
    """No score by the deadline. `starved`: because the machine had no free core for the worker."""

    def __init__(self, starved: bool) -> None:
        super().__init__()
        self.starved = starved


@dataclass(eq=False, slots=True)
class WorkerConnection:
    """One worker, from fork to kill.

    Attributes:
        prepared: the scorers that the worker has made ready.
        jobs: how many it was given.
        busy: it was given a job and has not replied.
    """

    server: ForkServer
    sock: socket.socket
    pid: int
    prepared: set[bytes] = field(default_factory=set)
    jobs: int = 0
    busy: bool = False

    def is_usable(self) -> bool:
        """Whether the worker is alive and silent. A worker without a job has nothing to send, so any byte is forged."""
        try:
            return not self._replies_by(0.0)
        except OSError:
            return False

    def prepare(self, scorer: bytes) -> str | None:
        """Make the worker prepare a scorer, if it has not yet. Returns the reason why that is impossible, or None.

        Raises:
            TimeoutError, EOFError, OSError, ProtocolError: kill the worker.
        """
        if scorer in self.prepared:
            return None
        deadline = monotonic() + PREPARE_SECONDS
        send_frame(self.sock, pickle.dumps((scorer, pickle.loads(scorer))), deadline)
        reason, _ = decode_reply(recv_frame(self.sock, MAX_REPLY_BYTES, deadline))
        if isinstance(reason, str):
            return reason
        self.prepared.add(scorer)
        return None

    def score(self, job: Job, seconds: float) -> tuple[Form, Form]:
        """Have the answer scored, bare and tagged. The scorer must have been prepared.

        Args:
            seconds: wall time that the worker gets.

        Raises:
            ScoringTimeoutError, EOFError, OSError, ProtocolError: kill the worker.
        """
        self.jobs += 1
        self.busy = True
        request = pickle.dumps((job.scorer, job.entry, job.answer))
        start = monotonic()
        send_frame(self.sock, request, start + seconds)
        halfway = None if self._replies_by(start + seconds / 2) else Effort.of(self.pid)
        try:
            payload = recv_frame(self.sock, MAX_REPLY_BYTES, start + seconds)
        except TimeoutError:
            raise ScoringTimeoutError(halfway is not None and halfway.starved_since(seconds / 2)) from None
        forms = decode_reply(payload)
        self.busy = False
        return forms

    def kill(self) -> None:
        """End the worker and everything in its process group. Never fails."""
        self.sock.close()
        self.server.kill(self.pid)

    def _replies_by(self, moment: float) -> bool:
        """Wait for a first byte or the end of the connection; False if neither comes until then."""
        self.sock.settimeout(max(0.0, moment - monotonic()))
        try:
            self.sock.recv(1, socket.MSG_PEEK)
        except (TimeoutError, BlockingIOError):
            return False
        return True
