"""How much CPU time an answer may take if answers to its task have hung before.

Invariant: a hang costs the full limit a few times per task, not once per answer. No answer is refused a try, and no
limit is shortened below the CPU time that correct answers to the task need.
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
_REMEMBERED = 4096

_HONEST_SECONDS = 0.5
_HONEST_SECONDS_OF = {"intermediate_integration": 2.0, "simple_integration": 1.0}
"""CPU seconds that suffice for correct answers: more than twice the slowest one measured (0.78 and 0.22 s among 200
equivalent forms of the answers to 20 items each, 0.01 s on any other task; on a machine with five busy processes per
core)."""


def honest_seconds(task: str) -> float:
    """CPU seconds that suffice for any correct answer to the task."""
    return _HONEST_SECONDS_OF.get(task, _HONEST_SECONDS)


class Breaker:
    """CPU time limits per task, and a memory of answers that hung. Thread-safe.

    Limits: each timeout of a task adds a strike, up to four; each of its answers that finishes in time removes 1/64 of
    a strike. With three strikes or more, the task's answers get a tenth of the limit (at least `honest_seconds`), until
    enough of them have finished in time: 64 to 128. So limits are shortened if more than one answer in 64 hangs.

    Memory: an answer that used up the full limit is not tried again while it is among the last 4096 of them.

    Args:
        timeout: CPU seconds that an answer may take.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._strikes: dict[str, float] = {}
        self._hung: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()

    def limit(self, task: str) -> float:
        """CPU seconds that the next answer of this task gets."""
        if self._strikes.get(task, 0.0) < _STRIKES:
            return self._timeout
        return min(self._timeout, max(honest_seconds(task), self._timeout * _SHORT_SHARE))

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

    def timed_out(self, task: str, digest: bytes, limit: float) -> None:
        """Record that an answer of the task hung: it used up `limit`, as given by `limit(task)`."""
        with self._lock:
            before = self._strikes.get(task, 0.0)
            self._strikes[task] = after = min(_MAX_STRIKES, before + 1)
            if limit >= self._timeout:
                self._hung[digest] = None
                if len(self._hung) > _REMEMBERED:
                    self._hung.popitem(last=False)
        if before < _STRIKES <= after:
            short = self.limit(task)
            logger.warning(f"{task}: answers keep hanging the scorer; the limit is now {short:g} s of CPU per answer")
