"""The end of a draw that does not return: a last resort behind the bounds of `generators`.

A draw ends after 60 CPU seconds of its thread, far above any that returns, so that machines agree on which draws these
are. Only a main thread can be stopped, by SIGVTALRM. In other threads, or if the program uses this signal itself, the
draw is made in the main thread of a process kept for that. Not covered: a call into C that checks for no signals; tasks
that the main script defines, in other threads.
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


def can_stop_here() -> bool:
    """Whether this is the main thread, and the signal is free."""
    if threading.current_thread() is not threading.main_thread():
        return False
    free = signal.getsignal(signal.SIGVTALRM) in (signal.SIG_DFL, signal.SIG_IGN)
    return free and signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def make_in_time[T](make: Callable[[], T], cpu_seconds: float) -> T:
    """What `make` returns.

    Raises:
        EndlessDrawError: it took too long, and `can_stop_here`.
    """
    if not can_stop_here():
        return make()
    end = time.thread_time() + cpu_seconds

    def stop(*_: object) -> None:
        if time.thread_time() >= end:  # the timer counts the time of all threads
            raise _Stop

    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, cpu_seconds, 1)  # then each second, if a bare `except` caught it
            return make()
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _Stop:
        raise EndlessDrawError(f"stopped after {cpu_seconds:g} CPU seconds") from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def make_elsewhere(*request: Any) -> Any:
    """What `rg_env.tasks.upstream.dataset.serve` answers to the request, in the other process.

    Raises:
        OSError: the process ended.
    """
    result = _processes.setdefault(os.getpid(), _Process()).ask((sys.path, *request))
    if isinstance(result, Exception):
        raise result
    return result


class _Process:
    """Makes entries in its main thread, one at a time. Starts with the first; ends with this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def ask(self, request: tuple[Any, ...]) -> Any:
        with self._lock:
            self._connection = self._connection or _start()
            try:
                self._connection.send(request)
                return self._connection.recv()
            except (EOFError, OSError) as error:
                self._connection = None
                raise OSError("the process that makes items has ended") from error


_processes: dict[int, _Process] = {}
"""By the pid of who asks: a forked process must not use the connection of the other."""


def _start() -> Connection:
    ours, theirs = socket.socketpair()
    with theirs:
        code = f"from rg_env.tasks.upstream.dataset import serve; serve({theirs.fileno()})"
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path)},  # noqa: PTH100
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # this process handles Ctrl-C
        )
    atexit.register(process.kill)
    return Connection(ours.detach())
