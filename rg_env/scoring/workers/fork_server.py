"""The parent's end of the fork server (`python -m rg_env.scoring.workers.worker`): start it, have it fork and kill.

Invariant: one `ForkServer` is one process, used by one thread; only `close` may be called by another. It gets nothing
from this process but its import paths and a short list of environment variables: no tokens.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress

from rg_env.errors import one_line
from rg_env.scoring.sandbox.sandbox import warn_about_missing
from rg_env.scoring.workers.protocol import MAX_LINE
from rg_env.scoring.workers.worker import GUEST, PID
from rg_env.user_code import IMPORTS

_START_SECONDS, _EXIT_SECONDS = 120.0, 5.0
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class ForkServer:
    """A running fork server. The constructor returns before it is ready; `fork` waits for that.

    Args:
        memory_bytes: how far a worker may grow, in bytes of address space.
        cpu_seconds: CPU time that one answer may take.
        guest: import users' modules.
    """

    def __init__(self, memory_bytes: int, cpu_seconds: int, guest: bool) -> None:
        warn_about_missing()
        self._ready = False
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  (unlike a pipe, a file never blocks the writer)
        self._control, theirs = socket.socketpair()
        self._control.settimeout(_START_SECONDS)
        with theirs:
            numbers = map(str, (theirs.fileno(), memory_bytes, cpu_seconds))
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "rg_env.scoring.workers.worker", *numbers, *([GUEST] if guest else [])],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                pass_fds=[theirs.fileno()],
                cwd="/",
                env=environment(guest),
                start_new_session=True,  # the trainer handles Ctrl-C in its terminal
            )

    def fork(self) -> tuple[socket.socket, int]:
        """The socket to a new worker, and its pid, which is not used again before `kill`.

        Raises:
            OSError, EOFError: the process has ended, or did not become ready, or could not fork.
        """
        if not self._ready:
            self._receive()
            self._ready = True
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self._control, [PID.pack(0)], [theirs.fileno()])
            if (pid := self._receive()) < 0:
                raise OSError(-pid, f"cannot fork: {os.strerror(-pid)}")
        except BaseException:
            ours.close()
            raise
        return ours, pid

    def kill(self, pid: int) -> None:
        """Kill a worker and everything in its process group. Never fails."""
        with suppress(OSError):
            self._control.sendall(PID.pack(pid))

    def close(self) -> None:
        """End the process and all its workers. May be called more than once."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        if not self._ready:
            self._process.kill()  # it has no workers yet, and would finish its imports first
        try:
            self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def last_line(self, error: Exception) -> str:
        """The last line that the process wrote, or why it failed."""
        if isinstance(error, TimeoutError):
            return "they did not answer in time"
        self._stderr.seek(max(0, self._stderr.seek(0, os.SEEK_END) - 4096))
        lines = self._stderr.read().decode("utf-8", "replace").strip().splitlines()
        return one_line(lines[-1], MAX_LINE) if lines else str(error) or "they ended without an error message"

    def _receive(self) -> int:
        message = self._control.recv(PID.size, socket.MSG_WAITALL)
        if len(message) < PID.size:
            raise EOFError
        number: int = PID.unpack(message)[0]
        return number


def environment(guest: bool) -> dict[str, str]:
    """The environment variables of the scorer processes."""
    names = (*_INHERITED, IMPORTS) if guest else _INHERITED
    return {name: os.environ[name] for name in names if name in os.environ} | {
        "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path if path),  # noqa: PTH100
        "PYTHONHASHSEED": "0",  # makes scores that depend on the order of a set reproducible
        "OMP_NUM_THREADS": "1",  # a process that forks must have no threads, and the cores are for training
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "MPLBACKEND": "agg",
    }
