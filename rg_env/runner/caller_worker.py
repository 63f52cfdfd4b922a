"""The caller's side: the server process and a worker, as the process that asks sees them.

Invariants:
- Requests are pickles, because a worker may trust the process that asks. A reply is one line of JSON that is checked
  value by value and never unpickled, because a worker may have run model output.
- The processes get nothing from this one but its import paths and a short list of environment variables: no tokens.
- A worker says nothing unless it is asked. One that does, or that ended, is not used again.

Everything here runs in the private thread (`handover`), where no signal handler can interrupt it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import math
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random
from socket import MSG_PEEK, SHUT_RDWR, send_fds, socket, socketpair
from time import clock_gettime, monotonic
from typing import IO, NamedTuple

from .failures import LONGEST_REASON, Failure, JobFailedError, ProtocolError, one_line
from .protocol import COMMAND

logger = logging.getLogger(__package__)

START_SECONDS = 120.0
"""After which a server that imports, or that forks, is given up."""
_EXIT_SECONDS = 5.0
_SHORTEST_WAIT = 0.01
_LOOKS_FOR_SERVER = 1.0
_MAX_REPLY_BYTES = 8192
_QUICK = 0.001
"""CPU seconds of a job. Above that it gets a message of its own, so that no other waits for it."""
_MOST_BYTES = 8 * _MAX_REPLY_BYTES
"""Read at once."""
_words = Random()
"""Not `secrets`, which asks the system for each word: what runs in a worker may see its own words anyway."""
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class Limit(NamedTuple):
    """How long a worker may take, in seconds.

    Attributes:
        cpu: CPU time that its process may use. One that sleeps when so much wall time is over has used it up, too: it
            waits for something that does not come. Infinite where it may have threads and children, whose time its
            process does not show: then only wall time counts.
        wall: time that it may take in any case.
    """

    cpu: float
    wall: float


class ForkServer:
    """A running server process, which may still be importing its modules.

    Args:
        memory_bytes: how far a worker may grow, in bytes of address space; 0: without a sandbox.
        cpu_seconds: CPU time that one answer may take.
        modules: what to import.
        preparation: a pickle of (target, examples) that the server makes ready before it forks; empty: of none.

    Attributes:
        modules: what it imports.
        has_started: whether it has forked a worker.
    """

    def __init__(self, memory_bytes: int, cpu_seconds: int, modules: Sequence[str], preparation: bytes = b"") -> None:
        self.modules = modules
        self.has_started = False
        self._numbers = itertools.count()
        self._stderr = _nameless_file()  # unlike a pipe, a file never blocks the writer
        self._control, theirs = socketpair()
        # A server that does not read (it was stopped) must not block this thread: a full socket is an error.
        self._control.setblocking(False)
        python = [sys.executable, "-P", "-m", f"{__package__}.server_process"]
        numbers = map(str, (theirs.fileno(), os.getpid(), memory_bytes, cpu_seconds))
        command = [*python, *numbers, *modules]
        with theirs, _nameless_file() as stdin:
            stdin.write(preparation)
            stdin.seek(0)
            self.process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                pass_fds=[theirs.fileno()],
                cwd="/",
                env=environment(),
                start_new_session=True,  # the trainer handles Ctrl-C in its terminal
            )

    async def fork(self) -> Worker:
        """Return a new worker. Raises EOFError, OSError: the fork failed."""
        number = next(self._numbers)
        ours, theirs = socketpair()
        worker = Worker(ours, lambda: self._end_worker(number))
        try:
            with theirs:
                send_fds(self._control, [COMMAND.pack(number)], [theirs.fileno()])
            await worker.start(lambda: self.process.poll() is not None)
        except BaseException:
            worker.discard()
            raise
        self.has_started = True
        return worker

    def _end_worker(self, number: int) -> None:
        """Have a worker killed and reaped, with everything in its process group."""
        try:
            self._control.send(COMMAND.pack(number))
        except BlockingIOError:
            # The server reads no commands any more. All its workers end with it, and their jobs are tried once more.
            self.process.kill()
        except OSError:  # it has ended
            pass

    async def close(self) -> None:
        """End the process and all its workers."""
        with suppress(OSError):
            self._control.shutdown(SHUT_RDWR)
        # It ends when it reads that its socket is closed. One that has never forked may be importing, and would finish
        # that first, so it is not waited for.
        end = monotonic() + (_EXIT_SECONDS if self.has_started else 0.0)
        while self.process.poll() is None and monotonic() < end:
            await asyncio.sleep(0.005)
        self.kill()
        self._control.close()
        self._stderr.close()

    def kill(self) -> None:
        """End the process at once; on Linux its workers die with it."""
        self.process.kill()
        self.process.wait()

    def last_line(self) -> str:
        """Return the last line that the process wrote before it ended; empty if it wrote none."""
        self._stderr.seek(max(0, self._stderr.seek(0, os.SEEK_END) - 4096))
        lines = self._stderr.read().decode("utf-8", "replace").strip().splitlines()
        return one_line(lines[-1], LONGEST_REASON) if lines else ""


def _nameless_file() -> IO[bytes]:
    """Return an open file, in memory where the system can: it may have no folder that can be written."""
    with suppress(AttributeError, OSError):
        return open(os.memfd_create("rg_env"), "w+b")  # noqa: PTH123  (a descriptor)
    return tempfile.TemporaryFile()


def environment() -> dict[str, str]:
    """Return the environment variables of the processes."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    paths = [os.path.abspath(path) for path in sys.path]  # noqa: PTH100
    return inherited | {
        "PYTHONPATH": os.pathsep.join(paths),
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
        end_process: has the process killed and reaped. No other process gets its pid before.

    Attributes:
        pid: 0 until the worker has said it.
        is_forked_ready: whether its server had made the target ready before it forked.
        seconds: by target that it has made ready itself, the CPU time of a job, as of the last message; infinite before
            that.
        jobs: how many it was given.
    """

    def __init__(self, sock: socket, end_process: Callable[[], None]) -> None:
        self.pid = 0
        self.is_forked_ready = False
        self.seconds: dict[bytes, float] = {}
        self.jobs = 0
        self._sock = sock
        self._sock.setblocking(False)
        # The loop gets the number: it formats what it does not know as a text, which for a socket takes system calls.
        self._fd = sock.fileno()
        self._end_process = end_process
        self._loop = asyncio.get_running_loop()

    def is_usable(self) -> bool:
        """Return whether the worker is there, and silent as it should be: what it says unasked is forged."""
        try:
            self._sock.recv(1, MSG_PEEK)
        except BlockingIOError:  # nothing to read: neither a word nor the end
            return True
        except OSError:
            pass
        return False

    def is_quick(self, target: bytes) -> bool:
        """Return whether a job of this target takes less than a message does."""
        return self.seconds.get(target, math.inf) <= _QUICK

    def discard(self) -> None:
        """End the process. May be called more than once."""
        if self._sock.fileno() != -1:
            self._sock.close()
            self._end_process()

    async def start(self, has_server_ended: Callable[[], bool]) -> None:
        """Wait until the worker exists. Raises EOFError, OSError: the fork failed."""
        end = monotonic() + START_SECONDS
        while (first := self._read()) is None:
            if monotonic() >= end:
                raise TimeoutError(f"no worker within {START_SECONDS:g} s")
            # Usually an EOF tells. Not if the worker was stopped in its first millisecond: then it keeps the socket.
            if has_server_ended():
                raise EOFError("the server has ended")
            await self._wait_for_message(min(end - monotonic(), _LOOKS_FOR_SERVER))
        # It has seen no argument yet, so what it says is believed, if it could say it.
        try:
            self.pid, missing, self.is_forked_ready = json.loads(first)
        except (ValueError, TypeError) as error:
            raise EOFError(f"the worker did not say its pid: {error}") from None
        _warn_about(tuple(f"{name} ({reason})" for name, reason in missing.items()))

    async def ask(self, target: bytes, arguments: bytes, limit: Limit) -> object:
        """Return the reply to a request.

        Raises:
            JobFailedError: no reply within the limit. It, EOFError, OSError, ProtocolError: discard the worker.
        """
        (reply,) = await self.ask_several([(target, arguments)], limit)
        return reply

    async def ask_several(self, requests: Sequence[tuple[bytes, bytes]], limit: Limit) -> list[object]:
        """Return the replies to requests, pairs of target and arguments, that are sent in one message.

        Raises as `ask`: no reply within the limit after another, or not exactly one for each.
        """
        # What a job says beside its reply does not have the word of this message: neither does a late reply to the one
        # before.
        word = f"{_words.getrandbits(64):x}"
        before, began = cpu_seconds(self.pid), monotonic()
        used = before
        await self._send(b"".join(pickle.dumps((*request, word)) for request in requests), limit.wall)
        lines: list[bytes] = []
        while len(lines) < len(requests):
            lines += await self._next_lines(began + limit.wall, used, limit)
            # The limits of the next one begin here, although it has begun a moment ago.
            used, began = cpu_seconds(self.pid), monotonic()
        if len(lines) > len(requests):
            raise ProtocolError("there are more replies than requests")
        for target, _ in requests:
            if target in self.seconds:  # else it was to be made ready, which is not a job
                self.seconds[target] = (used - before) / len(requests)
                self.jobs += 1
        return [_decode(line, word) for line in lines]

    async def _next_lines(self, end: float, before: float, limit: Limit) -> list[bytes]:
        """Return the lines that come next. Raises as `ask`.

        Args:
            end: when they are too late, as `monotonic` has it.
            before: CPU time of the worker when it began.
        """
        # It cannot use up its CPU time in less wall time, so the first look comes after that.
        pause = min(limit.cpu, end - monotonic())
        while True:
            # 1. Wait for the reply until it may be too late.
            await self._wait_for_message(pause)
            if lines := self._read_lines():
                return lines
            # 2. Is it? It had at least `limit.cpu` seconds of wall time by now. One that waits for a core is not asleep
            # but runnable, so a single look tells that it waits for something else, and this time counts. One that was
            # stopped, or waits for a disk, is not asleep either: that is the machine's doing, and excused.
            used = cpu_seconds(self.pid) - before
            left = end - monotonic()
            sleeps = limit.cpu < math.inf and is_asleep(self.pid)
            if sleeps or used >= limit.cpu or left <= 0:
                break
            # 3. No: it needed the time to get a core. Look again as soon as it may be.
            pause = min(left, max(_SHORTEST_WAIT, limit.cpu - used))
        # It may be asleep because it has replied after the last look. A worker sleeps only when its reply is in the
        # socket, so one more look is enough.
        if lines := self._read_lines():
            return lines
        raise _too_late(limit, used, sleeps)

    def _read_lines(self) -> list[bytes]:
        """Read the lines that the worker has sent. Raises as `_read`, and ProtocolError."""
        # Whole lines: a worker sends each by a single call, and the buffers have room for it. Part of a line comes from
        # nobody but an answer, or from replies that are far longer than any scorer's.
        *lines, rest = (self._read() or b"").split(b"\n")
        if rest:
            raise ProtocolError("the reply is not one whole line")
        return lines

    async def _send(self, request: bytes, seconds: float) -> None:
        # Nearly every request fits into the socket at once, which is faster than to ask the loop.
        sent = 0
        with suppress(BlockingIOError):
            sent = self._sock.send(request)
        if sent < len(request):
            with suppress(TimeoutError):  # a worker that does not take all of it is too late, too
                async with asyncio.timeout(seconds):
                    await self._loop.sock_sendall(self._sock, memoryview(request)[sent:])

    async def _wait_for_message(self, seconds: float) -> None:
        """Wait until there is something to read, or until the time is over."""
        is_over = asyncio.Event()
        timer = self._loop.call_later(seconds, is_over.set)
        self._loop.add_reader(self._fd, is_over.set)
        try:
            await is_over.wait()
        finally:
            self._loop.remove_reader(self._fd)
            timer.cancel()

    def _read(self) -> bytes | None:
        """Read what the worker said; None if it has said nothing. Raises EOFError: it has ended."""
        try:
            received = self._sock.recv(_MOST_BYTES)
        except BlockingIOError:
            return None
        except OSError:  # it ended before it had read everything
            received = b""
        if not received:
            raise EOFError("the worker has ended")
        return received


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far. Outside Linux it is unknown, and wall time takes its place."""
    if sys.platform != "linux":
        return monotonic()
    # Still readable when a worker has died: it is not reaped before this side says so, and nobody gets its pid.
    clock = ~pid << 3 | 2  # the clock of a process, as clock_getcpuclockid(3) makes it
    return clock_gettime(clock)


def is_asleep(pid: int) -> bool:
    """Return whether a process waits for something that is neither a core nor a disk. Never outside Linux."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"
    except OSError:
        return False


def _decode(line: bytes, word: str) -> object:
    """Return the reply to a request of the message with this word. Raises ProtocolError: it is none."""
    try:
        match json.loads(line):
            case [of_message, reply] if of_message == word:
                return reply
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the reply is not JSON: {error}") from None
    raise ProtocolError("the reply is not to this message")


def _too_late(limit: Limit, used: float, sleeps: bool) -> JobFailedError:
    """Why there is no reply: excused if the machine had no core for the worker."""
    if limit.cpu == math.inf:
        return JobFailedError(Failure.TIMEOUT, f"no score within {limit.wall:g} s")
    if used < limit.cpu and not sleeps:
        why = f"no core was free: the scorer got {used:.2g} s of CPU time"
        return JobFailedError(Failure.TIMEOUT, why, excused=True)
    return JobFailedError(Failure.TIMEOUT, f"no score within {limit.cpu:g} s of CPU time")


@cache
def _warn_about(missing: tuple[str, ...]) -> None:
    """Say once what the sandbox of the workers lacks."""
    if missing:
        logger.warning("scorer processes run without %s; docs/security.md explains the risk", ", ".join(missing))
