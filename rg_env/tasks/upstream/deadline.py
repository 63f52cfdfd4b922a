"""The end of a draw that does not return: a last resort behind the bounds of `determinism`.

A draw ends after 60 CPU seconds of its thread, far above any that returns, so that machines agree on which draws these
are. Only a main thread can be stopped, by SIGVTALRM; in other threads, or if the program uses this signal itself, the
draw is made in the main thread of a process kept for that. Not covered: a call into C that checks for no signals; and
outside of main threads, tasks that are defined in the main script.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any


class EndlessDrawError(Exception):
    """The draw was stopped."""


class _Stop(BaseException):
    """Raised in the draw; no `except Exception` of a generator catches it."""


_drawing = False
"""Whether the main thread is in a draw, whose deadline then holds for draws within."""


def can_stop_here() -> bool:
    """Whether this is the main thread, and the signal is free."""
    if threading.current_thread() is not threading.main_thread():
        return False
    free = signal.getsignal(signal.SIGVTALRM) in (signal.SIG_DFL, signal.SIG_IGN)
    return _drawing or (free and signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0))


def make_in_time[T](make: Callable[[], T], cpu_seconds: float) -> T:
    """What `make` returns. Only where `can_stop_here`.

    Raises:
        EndlessDrawError: it took too long.
    """
    global _drawing
    if _drawing:
        return make()
    end = time.thread_time() + cpu_seconds

    def stop(*_: object) -> None:
        if time.thread_time() >= end:  # the timer counts the time of all threads
            raise _Stop

    before = signal.signal(signal.SIGVTALRM, stop)
    _drawing = True
    try:
        try:
            signal.setitimer(
                signal.ITIMER_VIRTUAL, cpu_seconds, 1
            )  # again and again, in case a bare `except` catches it
            return make()
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _Stop:
        raise EndlessDrawError(f"stopped after {cpu_seconds:g} CPU seconds") from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        _drawing = False


class _Process:
    """Makes entries in its main thread, one at a time. Ends with this process."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            code = f"from rg_env.tasks.upstream.dataset import serve; serve({theirs.fileno()})"
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", code],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # this process handles Ctrl-C
            )
        self._connection = Connection(ours.detach())
        self._lock = threading.Lock()
        atexit.register(self._process.kill)

    def make(self, *request: Any) -> Any:
        with self._lock:
            self._connection.send(request)
            return self._connection.recv()


_process: _Process | None = None
_starting = threading.Lock()


def _forget_process() -> None:
    """In a forked process, which must not share the connection."""
    global _process, _starting
    _process, _starting = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_process)


def make_elsewhere(task: str, module: str, options: dict[str, Any], seed: int, cpu_seconds: float) -> dict[str, Any]:
    """An entry, made in the other process.

    Args:
        module: whose import registers the task.

    Raises:
        EndlessDrawError, UnusableItemError, MemoryError, OSError: as where it is made. OSError: the process ended.
        ValueError: any other error, in words.
    """
    global _process
    with _starting:
        process = _process = _process or _Process()
    try:
        result = process.make(sys.path, task, module, options, seed, cpu_seconds)
    except (EOFError, OSError) as error:
        _process = None
        raise OSError("the process that makes items has ended") from error
    if isinstance(result, Exception):
        raise result
    entry: dict[str, Any] = result
    return entry
