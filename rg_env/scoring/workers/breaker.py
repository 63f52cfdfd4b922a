"""How long an answer may take if answers to its task have hung before.

Invariant: a hang costs the full limit a few times per task, not once per answer. No answer is refused a try: only the
limit is shortened, to half a second at least, which is three times the slowest honest score measured (154 ms).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from loguru import logger

_STRIKES = 3.0
_MAX_STRIKES = 4.0
_STRIKE_WORN_OFF_BY = 64
_SHORT_SHARE = 0.1
_SHORT_AT_LEAST = 0.5
_REMEMBERED = 4096


class Breaker:
    """Time limits per task, and a memory of answers that hung. Thread-safe.

    Limits: each timeout of a task adds a strike, up to four; each of its answers that finishes in time removes 1/64 of
    a strike. With three strikes or more, the task's answers get a tenth of the limit (at least 0.5 s), until enough of
    them have finished in time: 64 to 128. So limits are shortened if more than one answer in 64 hangs.

    Memory: an answer that hung for the full limit is not tried again while it is among the last 4096 of them. One that
    only exceeded a shortened limit is not remembered, because it may have been honest.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._short = min(timeout, max(_SHORT_AT_LEAST, timeout * _SHORT_SHARE))
        self._strikes: dict[str, float] = {}
        self._hung: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()

    def limit(self, task: str) -> float:
        """Seconds that the next answer of this task gets."""
        return self._short if self._strikes.get(task, 0.0) >= _STRIKES else self._timeout

    def has_hung(self, digest: Callable[[], bytes]) -> bool:
        """Whether this answer to this question is remembered. Calls `digest` only if any answer is."""
        if not self._hung:
            return False
        wanted = digest()
        with self._lock:
            if wanted not in self._hung:
                return False
            self._hung.move_to_end(wanted)
            return True

    def finished(self, task: str) -> None:
        """Record that an answer of the task finished in time, whatever its score."""
        if task not in self._strikes:  # nearly always
            return
        with self._lock:
            left = self._strikes.pop(task, 0.0) - 1 / _STRIKE_WORN_OFF_BY
            if left > 0:
                self._strikes[task] = left

    def timed_out(self, task: str, digest: bytes | None, limit: float) -> None:
        """Record that an answer of the task did not finish within `limit` seconds, as given by `limit(task)`.

        Args:
            digest: of the answer, to remember it; None if its worker had no core to run on.
        """
        with self._lock:
            before = self._strikes.get(task, 0.0)
            self._strikes[task] = after = min(_MAX_STRIKES, before + 1)
            if digest is not None and limit >= self._timeout:
                self._hung[digest] = None
                if len(self._hung) > _REMEMBERED:
                    self._hung.popitem(last=False)
        if before < _STRIKES <= after:
            logger.warning(f"{task}: answers keep hanging the scorer; the limit is now {self._short:g} s per answer")
