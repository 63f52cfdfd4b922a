"""The end of a draw that does not return: a last resort behind the bounds of `generators`.

A draw ends after 60 CPU seconds of its thread, far above any that returns, so that machines agree on which draws these
are (where threads have no CPU clock, as on macOS: 60 seconds). While draws run, one thread watches all of the process,
and raises an exception in the thread of a draw that is over its time. Not covered: a call into C that does not return.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable

PAUSE = 0.25
"""Seconds between two looks at the clocks of draws."""


class EndlessDrawError(Exception):
    """The draw was stopped."""


class _Stop(BaseException):
    """Raised in the draw; no `except Exception` of a generator catches it."""


class _Watcher:
    """The thread that ends draws. It runs while there are any, of which each has a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: dict[int, tuple[int, float]] = {}  # by thread: a clock of the system, and its time
        self._runs = False

    def add(self, thread: int, cpu_seconds: float) -> None:
        """Watch the draw that a thread begins. Raises OSError, not the item's fault, if no thread can be started."""
        clock = time.pthread_getcpuclockid(thread) if hasattr(time, "pthread_getcpuclockid") else time.CLOCK_MONOTONIC
        with self._lock:
            if not self._runs:
                try:
                    threading.Thread(target=self._watch, name="rg-draws", daemon=True).start()
                except RuntimeError as error:
                    raise OSError(f"a draw cannot be watched: {error}") from error
                self._runs = True
            self._ends[thread] = clock, time.clock_gettime(clock) + cpu_seconds

    def remove(self, thread: int) -> None:
        """From now on, nothing is raised in the thread."""
        with self._lock:
            self._ends.pop(thread, None)
            _raise_in(thread, None)

    def _watch(self) -> None:
        while True:
            time.sleep(PAUSE)
            with self._lock:
                for thread, (clock, end) in self._ends.items():
                    if time.clock_gettime(clock) >= end:
                        _raise_in(thread, _Stop)  # again after each pause, if a bare `except` caught it
                if not self._ends:
                    self._runs = False
                    return


def _raise_in(thread: int, exception: type[BaseException] | None) -> None:
    """Raise an exception in another thread, as soon as it runs Python; None: take back one that waits for that."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), exception and ctypes.py_object(exception))


_watcher = _Watcher()


def _start_anew() -> None:
    global _watcher
    _watcher = _Watcher()


os.register_at_fork(after_in_child=_start_anew)  # a fork has one thread


def make_in_time[T](make: Callable[[], T], cpu_seconds: float) -> T:
    """What `make` returns.

    Raises:
        EndlessDrawError: it took too long.
    """
    thread = threading.get_ident()
    try:
        try:
            _watcher.add(thread, cpu_seconds)
            return make()
        finally:
            _watcher.remove(thread)
    except _Stop:
        _watcher.remove(thread)  # it may have come between the end of `make` and the other removal
        raise EndlessDrawError(f"stopped after {cpu_seconds:g} CPU seconds") from None
