"""Measures when a rollout began and ended, and how long its response and its scoring took.

Invariant: `ended` is never before `began`, also if the machine's clock is set back meanwhile.
"""

from __future__ import annotations

import time


class Stopwatch:
    """Started when the response is requested.

    Attributes:
        began, ended: in seconds since 1970-01-01 UTC; `ended` is the end of the last phase that was measured.
        generation, scoring: seconds of the two phases; 0 until they have ended.
    """

    __slots__ = ("_last", "began", "ended", "generation", "scoring")

    def __init__(self) -> None:
        self.began = self.ended = time.time()
        self.generation = self.scoring = 0.0
        self._last = time.monotonic()

    def responded(self) -> None:
        """The response is there; scoring begins."""
        self.generation = self._lap()

    def scored(self) -> None:
        """The verdict is there."""
        self.scoring = self._lap()

    def _lap(self) -> float:
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        self.ended += seconds
        return seconds
