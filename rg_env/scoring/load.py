"""How long answers take to be scored, and how many wait, for the metrics of a run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic


class Load:
    """Counts the answers in progress. Thread-safe.

    Args:
        capacity: how many answers can be scored at once now.
    """

    def __init__(self, capacity: Callable[[], int]) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._in_progress = self._longest_queue = self._done = 0
        self._seconds = 0.0

    @contextmanager
    def one_answer(self) -> Iterator[None]:
        """Around the scoring of one answer, from the moment it waits for a worker."""
        start = monotonic()
        with self._lock:
            self._in_progress += 1
            self._longest_queue = max(self._longest_queue, self._in_progress - self._capacity())
        try:
            yield
        finally:
            with self._lock:
                self._in_progress -= 1
                self._done += 1
                self._seconds += monotonic() - start

    def take(self) -> dict[str, float]:
        """The metrics since the last call; empty if no answer was scored."""
        with self._lock:
            if not self._done:
                return {}
            taken = {
                "rg_dump/mean_scoring_seconds": self._seconds / self._done,
                "rg_dump/max_scoring_queue": float(self._longest_queue),
            }
            self._longest_queue = self._done = 0
            self._seconds = 0.0
            return taken
