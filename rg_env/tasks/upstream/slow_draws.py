"""Logs a draw that does not return: it is never ended, only named, with how to leave its task out.

One thread watches all draws of the process. It starts with the first draw. If it cannot be started, there is no log.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from loguru import logger

SLOW = 60.0
"""Seconds after which a draw is logged, once."""
PAUSE = 5.0
"""Seconds between two looks."""


class _Watcher:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: dict[object, tuple[float, str, str]] = {}  # draw → time, task, item
        self._has_thread = False

    def begin(self, draw: object, task: str, item: str) -> None:
        with self._lock:
            self._started[draw] = time.monotonic(), task, item
            if self._has_thread:
                return
            self._has_thread = True
        with suppress(RuntimeError):  # no thread: only the log is missing
            threading.Thread(target=self._watch, name="rg-slow-draws", daemon=True).start()

    def end(self, draw: object) -> None:
        with self._lock:
            self._started.pop(draw, None)

    def _watch(self) -> None:
        while True:
            time.sleep(PAUSE)
            for task, item in self._take_slow():
                logger.warning(
                    "task {}: the draw of {} takes over {:g} s and may never end; "
                    "leave the task out with weight 0 in tasks",
                    task,
                    item,
                    SLOW,
                )

    def _take_slow(self) -> list[tuple[str, str]]:
        """Task and item of the draws to be logged; each is returned once."""
        with self._lock:
            limit = time.monotonic() - SLOW
            slow = [draw for draw, (start, _, _) in self._started.items() if start <= limit]
            return [self._started.pop(draw)[1:] for draw in slow]


_watcher = _Watcher()


def _start_anew() -> None:
    global _watcher
    _watcher = _Watcher()


os.register_at_fork(after_in_child=_start_anew)  # a fork has neither the thread nor the draws


@contextmanager
def watched(task: str, item: str) -> Iterator[None]:
    """Log the draw in the block if it takes long."""
    draw, watcher = object(), _watcher  # the same one at the end, even if the process forks meanwhile
    watcher.begin(draw, task, item)
    try:
        yield
    finally:
        watcher.end(draw)
