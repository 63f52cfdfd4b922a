"""How long an answer may take, when its task's answers have hung before.

Invariant: a hang costs the full limit a few times per task, not once per answer; and no answer is denied a try: what is
shortened is the waiting, down to half a second, three times the slowest honest score measured (154 ms).
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


class Patience:
    """Limits per task, and the answers that are known to hang. Thread-safe.

    The breaker: each timeout of a task is a strike, each answer of it that ends in time wears off 1/64 of one, four are
    the most. From three strikes on, the task's answers get a tenth of the limit (at least 0.5 s), until enough of them
    have ended in time: 64 to 128. So it opens for a task of which more than one answer in 64 hangs.

    The memory: an answer that hung for the full limit is not tried again while it is among the last 4096 such. One that
    only outlasted a shortened limit is not remembered: it may have been honest.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._short = min(timeout, max(_SHORT_AT_LEAST, timeout * _SHORT_SHARE))
        self._strikes: dict[str, float] = {}
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()

    def limit(self, task: str) -> float:
        """Seconds that the next answer of this task gets."""
        return self._short if self._strikes.get(task, 0.0) >= _STRIKES else self._timeout

    def knows(self, digest: Callable[[], bytes]) -> bool:
        """Whether this very question and answer hung before. The digest is asked for only if any answer did."""
        if not self._known:
            return False
        wanted = digest()
        with self._lock:
            if wanted not in self._known:
                return False
            self._known.move_to_end(wanted)
            return True

    def ended(self, task: str) -> None:
        """An answer of the task ended in time, whatever it scored."""
        if task not in self._strikes:  # nearly always
            return
        with self._lock:
            left = self._strikes.pop(task, 0.0) - 1 / _STRIKE_WORN_OFF_BY
            if left > 0:
                self._strikes[task] = left

    def timed_out(self, task: str, digest: bytes | None, limit: float) -> None:
        """An answer of the task did not end within `limit` seconds, which is what `limit(task)` gave it.

        Args:
            digest: the answer to be remembered; None for one that could not help it.
        """
        with self._lock:
            before = self._strikes.get(task, 0.0)
            self._strikes[task] = after = min(_MAX_STRIKES, before + 1)
            if digest is not None and limit >= self._timeout:
                self._known[digest] = None
                if len(self._known) > _REMEMBERED:
                    self._known.popitem(last=False)
        if before < _STRIKES <= after:
            logger.warning(f"{task}: answers keep hanging its scorer; they get {self._short:g} s each for now")
