"""The scorer processes as the process that asks sees them: the fork server, and a worker.

Invariants:
- Requests are pickles, because a worker may trust the process that asks. A reply is one line of JSON that is checked
  value by value and never unpickled, because a worker may have run model output.
- The processes get nothing from this one but its import paths and a short list of environment variables: no tokens.
- A worker says nothing unless it is asked. One that does, or that ends, is discarded at once.

Workers are used in one event loop, the one in which they were made.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from socket import SHUT_RDWR, send_fds, socket, socketpair
from time import clock_gettime, monotonic

from loguru import logger

from rg_env.errors import one_line
from rg_env.scoring.types import Status
from rg_env.scoring.worker import COMMAND, LONGEST_REASON

_START_SECONDS, _EXIT_SECONDS = 120.0, 5.0
_SHORTEST_WAIT = 0.01
_MAX_REPLY_BYTES = 8192
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class ProtocolError(Exception):
    """The worker sent something invalid: do not use it any more."""


class JobFailedError(Exception):
    """A job without a result.

    Attributes:
        status: TIMEOUT, CRASHED, or ERROR: a worker cannot make what does the job.
        starved: a TIMEOUT because the machine had no core for the worker.
    """

    def __init__(self, status: Status, detail: str, starved: bool = False) -> None:
        super().__init__(detail)
        self.status = status
        self.starved = starved


class ForkServer:
    """A running fork server, which may still be importing its modules.

    Args:
        memory_bytes: how far a worker may grow, in bytes of address space; 0: without a sandbox.
        cpu_seconds: CPU time that one answer may take.
        modules: what to import.
    """

    def __init__(self, memory_bytes: int, cpu_seconds: int, modules: Sequence[str]) -> None:
        self._has_started = False
        self._numbers = itertools.count()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  (unlike a pipe, a file never blocks the writer)
        self._control, theirs = socketpair()
        with theirs:
            arguments = map(str, (theirs.fileno(), os.getpid(), memory_bytes, cpu_seconds))
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "rg_env.scoring.worker", *arguments, *modules],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                pass_fds=[theirs.fileno()],
                cwd="/",
                env=environment(),
                start_new_session=True,  # the trainer handles Ctrl-C in its terminal
            )

    async def fork(self) -> Worker:
        """A new worker. Raises EOFError, OSError: there is none."""
        number = next(self._numbers)
        ours, theirs = socketpair()
        worker = Worker(ours, lambda: self._command(number))
        try:
            with theirs:
                send_fds(self._control, [COMMAND.pack(number)], [theirs.fileno()])
            await worker.start()
        except BaseException:
            worker.discard()
            raise
        self._has_started = True
        return worker

    def _command(self, number: int) -> None:
        """Have a worker killed, with everything in its process group."""
        with suppress(OSError):
            self._control.sendall(COMMAND.pack(number))

    def close(self) -> None:
        """End the process and all its workers."""
        with suppress(OSError):
            self._control.shutdown(SHUT_RDWR)
        if self._has_started:  # otherwise it would finish its imports first
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_EXIT_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End the process at once; on Linux its workers die with it."""
        self.process.kill()
        self.process.wait()

    def last_line(self) -> str:
        """The last line that the process wrote before it ended."""
        self._stderr.seek(max(0, self._stderr.seek(0, os.SEEK_END) - 4096))
        lines = self._stderr.read().decode("utf-8", "replace").strip().splitlines()
        return one_line(lines[-1], LONGEST_REASON) if lines else "they ended without an error message"


def environment() -> dict[str, str]:
    """The environment variables of the scorer processes."""
    return {name: os.environ[name] for name in _INHERITED if name in os.environ} | {
        "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path),  # noqa: PTH100
        "PYTHONHASHSEED": "0",  # makes scores that depend on the order of a set reproducible
        "OMP_NUM_THREADS": "1",  # a process that forks must have no threads, and the cores are for training
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "MPLBACKEND": "agg",
    }


class Worker:
    """One worker process and the socket to it.

    Args:
        sock: what the worker says comes from here, from its first message to its end.
        kill: has the process killed and reaped. No other process gets its pid before.

    Attributes:
        pid: 0 until the worker has said it.
        prepared: the targets that the worker has made ready.
        jobs: how many it was given.
    """

    def __init__(self, sock: socket, kill: Callable[[], None]) -> None:
        self.pid = 0
        self.prepared: set[bytes] = set()
        self.jobs = 0
        self._sock = sock
        self._sock.setblocking(False)
        self._kill = kill
        self._loop = asyncio.get_running_loop()
        self._message: asyncio.Future[bytes] | None = self._loop.create_future()  # None: nothing is expected
        self._loop.add_reader(sock, self._read)
        self._timer: asyncio.TimerHandle

    def _read(self) -> None:
        """Take what the worker said, at most one message at a time; an empty one if it has ended."""
        try:
            received = self._sock.recv(_MAX_REPLY_BYTES)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if self._message is None or self._message.done():  # unasked, it has nothing to say: it is forged, or an end
            self.discard()
        elif received:
            self._message.set_result(received)
        else:
            self._message.set_exception(EOFError())

    @property
    def is_waiting(self) -> bool:
        """Whether the worker was not discarded, and has replied to all that it was asked."""
        return self._sock.fileno() != -1 and self._message is None

    def is_usable(self) -> bool:
        """Whether it is waiting, and silent as it should be."""
        if self.is_waiting:
            self._read()
        return self.is_waiting

    def discard(self) -> None:
        """Kill the process. May be called more than once."""
        if self._sock.fileno() != -1:
            self._loop.remove_reader(self._sock)
            self._sock.close()
            self._kill()

    async def start(self) -> None:
        """Wait until the worker exists. Raises EOFError, OSError: there is none."""
        assert self._message is not None
        first, self._message = await asyncio.wait_for(self._message, _START_SECONDS), None
        self.pid, missing = json.loads(first)
        _warn_about(tuple(f"{name} ({reason})" for name, reason in missing.items()))

    async def ask(self, target: bytes, arguments: bytes, cpu: float, wall: float) -> object:
        """The reply to a request.

        Args:
            cpu: CPU seconds that the worker may use, or that it may sleep.
            wall: seconds that it may take in any case.

        Raises:
            JobFailedError: no reply within the limits. It, EOFError, OSError, ProtocolError: discard the worker.
        """
        end, before = monotonic() + wall, self._cpu_seconds()
        self._message = message = self._loop.create_future()
        # If the worker ends while it is sent the request, that fails, and nobody else looks at this error.
        message.add_done_callback(lambda reply: reply.cancelled() or reply.exception())
        request, sent = pickle.dumps((target, arguments)), 0
        with suppress(BlockingIOError):
            sent = self._sock.send(request)
        if sent < len(request):
            with suppress(TimeoutError):  # a worker that does not take all of it is too late, too
                async with asyncio.timeout(wall):
                    await self._loop.sock_sendall(self._sock, memoryview(request)[sent:])
        self._timer = self._loop.call_later(min(cpu, end - monotonic()), self._look, cpu, before, end)
        try:
            received = await message
        finally:
            self._timer.cancel()
        self._message = None
        try:
            return json.loads(received) if received.endswith(b"\n") else None
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"the reply is not JSON: {error}") from None

    def _look(self, cpu: float, before: float, end: float) -> None:
        """End the wait for a message that is too late, or look again as soon as it may be."""
        used, asleep, left = self._cpu_seconds() - before, self._is_asleep(), end - monotonic()
        if not asleep and used < cpu and left > 0:
            self._timer = self._loop.call_later(
                min(left, max(_SHORTEST_WAIT, cpu - used)), self._look, cpu, before, end
            )
            return
        self._read()  # it may be asleep because it has replied
        if self._message is not None and not self._message.done():
            starved = used < cpu and not asleep
            why = f"no score within {cpu:g} s of CPU time"
            if starved:
                why = f"no core was free: the scorer got {used:.2g} s of CPU time"
            self._message.set_exception(JobFailedError(Status.TIMEOUT, why, starved))

    def _cpu_seconds(self) -> float:
        """CPU time of the worker so far. Outside Linux it is unknown, and wall time takes its place."""
        # The clock of a process, as clock_getcpuclockid(3) returns it.
        return clock_gettime(~self.pid << 3 | 2) if sys.platform == "linux" else monotonic()

    def _is_asleep(self) -> bool:
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"
        except OSError:
            return False


@cache
def _warn_about(missing: tuple[str, ...]) -> None:
    """Say once what the sandbox of the workers lacks."""
    if missing:
        logger.warning("scorer processes run without {}; docs/security.md explains the risk", ", ".join(missing))


def reason_of(value: object) -> str:
    """A text that a worker sent, as one line of bounded length. Raises ProtocolError if it is none."""
    if not isinstance(value, str):
        raise ProtocolError("neither a number nor a reason")
    return one_line(value, LONGEST_REASON) or "no reason given"
