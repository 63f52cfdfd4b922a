"""The trainer's end of the fork server: start it, make it fork and kill workers, end it.

Invariant: one `ForkServer` is one process. After a failure every call fails, and a new `ForkServer` is needed. The
process gets nothing from the trainer but its import paths and a short list of environment variables: no tokens.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import Future
from contextlib import suppress
from time import monotonic

from rg_env.errors import one_line
from rg_env.scoring.sandbox.sandbox import Measure
from rg_env.scoring.workers.protocol import COMMAND, FORK, FORKED, KILL, MAX_LINE, decode_measures, recv_frame
from rg_env.user_code import IMPORTS

_INHERITED = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "RG_ENV_UNAUDITED",
    IMPORTS,
)
_FORK_SECONDS = 30.0
_EXIT_SECONDS = 5.0
_MAX_FRAME = 1 << 16


class ForkServerError(Exception):
    """The process did not start, or has ended. The message has the last line that it wrote."""


class ForkServer:
    """A running `python -m rg_env.scoring.workers.worker`. The constructor returns before it is ready."""

    def __init__(self, start_seconds: float) -> None:
        self._lock = threading.Lock()
        self._measures: list[Measure] | None = None
        self._start_by = monotonic() + start_seconds
        self._closed = threading.Event()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  (unlike a pipe, a file never blocks the writer)
        self._control, theirs = socket.socketpair()
        started: Future[subprocess.Popen[bytes]] = Future()
        arguments = (theirs.fileno(), self._stderr.fileno(), started, self._closed)
        threading.Thread(target=_start_and_stay, args=arguments, name="rg_env-fork-server", daemon=True).start()
        with theirs:
            try:
                self._process = started.result()
            except OSError as error:
                self._control.close()
                self._stderr.close()
                raise ForkServerError(str(error)) from error

    def measures(self) -> list[Measure]:
        """What its workers cannot do, as tried by one of them. Waits until the process is ready.

        Raises:
            ForkServerError: it has ended, or did not become ready.
        """
        try:
            with self._lock:
                return list(self._wait_until_ready())
        except (OSError, EOFError) as error:
            raise ForkServerError(self._last_line(error)) from error

    def fork(self, memory_bytes: int, cpu_seconds: int) -> tuple[socket.socket, int]:
        """A new worker: the socket to it, and its pid, for which the caller must call `kill` in the end.

        Waits until the fork server is ready.

        Args:
            memory_bytes: how far the worker may grow, in bytes of address space.
            cpu_seconds: CPU time that one answer may take; in [0, 2³²).

        Raises:
            ForkServerError: it has ended, or did not become ready, or could not fork.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs, self._lock:
                self._wait_until_ready()
                command = COMMAND.pack(FORK, 0, memory_bytes, cpu_seconds)
                socket.send_fds(self._control, [command], [theirs.fileno()])
                (pid,) = FORKED.unpack(recv_frame(self._control, _MAX_FRAME, monotonic() + _FORK_SECONDS))
            if pid < 0:
                raise ForkServerError(f"cannot fork: {os.strerror(-pid)}")
        except (OSError, EOFError) as error:
            ours.close()
            raise ForkServerError(self._last_line(error)) from error
        except BaseException:
            ours.close()
            raise
        return ours, pid

    def kill(self, pid: int) -> None:
        """Kill a worker and everything in its process group. Returns at once and never fails."""
        with self._lock, suppress(OSError):
            self._control.sendall(COMMAND.pack(KILL, pid, 0, 0))

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """End the process and all its workers. Running calls fail. May be called more than once."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        if self._measures is None:
            self._process.kill()  # it has no workers yet, and would finish its imports first
        try:
            self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._closed.set()
        with self._lock:
            self._control.close()
            self._stderr.close()

    def _wait_until_ready(self) -> list[Measure]:
        if self._measures is None:
            self._measures = decode_measures(recv_frame(self._control, _MAX_FRAME, self._start_by))
        return self._measures

    def _last_line(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return "it did not answer in time"
        with suppress(OSError, ValueError):
            size = self._stderr.seek(0, os.SEEK_END)
            self._stderr.seek(max(0, size - 4096))
            lines = self._stderr.read().decode("utf-8", "replace").strip().splitlines()
            if lines:
                return one_line(lines[-1], MAX_LINE)
        return "it ended without an error message"


def _start_and_stay(
    control: int, stderr: int, started: Future[subprocess.Popen[bytes]], closed: threading.Event
) -> None:
    """Start the fork server, and stay: the kernel ends it when the thread that started it ends (PR_SET_PDEATHSIG)."""
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "rg_env.scoring.workers.worker", str(control)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            pass_fds=[control],
            cwd="/",
            env=_environment(),
            start_new_session=True,  # the trainer handles Ctrl-C in its terminal
        )
    except BaseException as error:
        started.set_exception(error)
    else:
        started.set_result(process)
        closed.wait()


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return kept | {
        "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path if path),  # noqa: PTH100
        "PYTHONHASHSEED": "0",  # makes scores that depend on the order of a set reproducible
        "OMP_NUM_THREADS": "1",  # a process that forks must have no threads, and the cores are for training
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "MPLBACKEND": "agg",
    }
