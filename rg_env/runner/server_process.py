"""The server process: `python -m rg_env.runner.server_process FD PARENT MEMORY SECONDS MODULES…` forks the workers.

Invariants:
- It imports the modules once and never sees model output. A worker that hung or died is replaced within milliseconds by
  a new fork.
- A *prepared* server has also set up one target, and called it with its examples, before it forks. It has limited
  memory and reads no files but Python's (Landlock); the ban on forking is applied in the workers.
- No process outlives the one that asks: the server ends when that has ended. On Linux the kernel then kills its
  workers, even if they are stopped.
- A worker is killed and reaped when the parent says so, even before the worker has said a word, and never otherwise. So
  no other process gets a pid that the parent knows, and none is left as a zombie.

Not covered: the reply of a worker. Code that runs in a worker can give *its own* answer any score.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import pickle
import random
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

from .child_process import Answerer, make_ready, send, serve_requests
from .child_sandbox import Sandbox
from .failures import describe, one_line
from .machine import die_with_parent
from .protocol import CANNOT_SERVE, CANNOT_SERVE_NOW, COMMAND

_PASSING = (
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN),
    *(errno.EIO, errno.ESTALE, errno.ETIMEDOUT),  # a network file system that could not be asked
)
_LOOKS_FOR_PARENT = 1.0


class Server:
    """What forks workers.

    Args:
        control: the parent's commands.
        parent: its pid.
        limits: bytes by which a worker may grow, and its CPU seconds; 0 bytes: without a sandbox.
    """

    def __init__(self, control: socket.socket, parent: int, limits: tuple[int, int]) -> None:
        self._control, self._parent, self._limits = control, parent, limits
        self._answerers: dict[bytes, Answerer] = {}
        self._pids: dict[int, int] = {}
        self._killed: list[int] = []
        # The state that every fork begins with. `prepare` reads it again, because the examples may draw.
        self._random_state = random.getstate()
        # Opened before any sandbox: these files cannot be opened later.
        self._sandbox = Sandbox()
        self._nowhere = os.open(os.devnull, os.O_RDWR)
        self._tasks = os.open("/proc/self/task", os.O_RDONLY) if sys.platform == "linux" else -1

    def prepare(self, target: bytes, examples: Sequence[tuple[Any, Any]]) -> None:
        """Make the target ready and try it. Raises ValueError: an example has another value, or threads run."""
        threads_of_imports = self._count_threads() - 1
        if self._limits[0]:
            self._sandbox.enter_before_forks(self._limits[0])
        try:
            self._answerers[target] = make_ready(target)
        except Exception:
            if examples:
                raise
            # Without an answerer the workers are not forked ready: the caller asks each to make the target ready first,
            # and gets the reason as the error of that call.
            return
        for arguments, value in examples:
            reply = self._answerers[target](pickle.dumps(arguments))
            if reply != value:
                raise ValueError(f"the example {arguments!r:.60} gives {reply!r:.80}, not {value!r:.60}")
        self._random_state = random.getstate()
        if threads_of_imports:
            # `fresh=False` imports the same modules before it forks, so it does not help.
            raise ValueError(
                "threads run after the import of its module, and a process with threads cannot be forked safely: "
                "start them in the function, not when the module is imported"
            )
        if self._count_threads() > 1:
            raise ValueError(
                "threads run after it was set up, and a process with threads cannot be forked safely: "
                "end them, or use fresh=False"
            )

    def _count_threads(self) -> int:
        if self._tasks != -1:
            return len(os.listdir(self._tasks))  # noqa: PTH208
        return threading.active_count()

    def serve(self) -> None:
        """Fork and kill workers on the parent's commands until the parent is gone. Returns in the server only."""
        # A forked child of the parent may hold its end of the socket, so that the end of the parent does not close it.
        self._control.settimeout(_LOOKS_FOR_PARENT)
        try:
            while os.getppid() == self._parent:
                self._reap()
                try:
                    # One command: all have this size, and are sent whole.
                    command, fds, _, _ = socket.recv_fds(self._control, COMMAND.size, 1)
                except TimeoutError:
                    continue
                if not command:
                    break
                # A socket asks for a fork that talks through it; without one the worker of this number is to end.
                (number,) = COMMAND.unpack(command)
                if fds:
                    self._start(number, fds[0])
                elif number in self._pids:  # otherwise its fork has failed
                    self._killed.append(self._pids.pop(number))
                    _kill(self._killed[-1])
        except ConnectionError:
            pass  # the parent is gone
        finally:
            for pid in self._pids.values():
                _kill(pid)

    def _reap(self) -> None:
        """Reap the workers that have ended since they were killed. Does not wait: the next fork does not, either."""
        not_ended = []
        for pid in self._killed:
            reaped, _ = os.waitpid(pid, os.WNOHANG)
            if reaped == 0:
                not_ended.append(pid)
        self._killed = not_ended

    def _start(self, number: int, fd: int) -> None:
        """Fork a worker, which does not return from here. Without one, the parent sees a closed socket."""
        with socket.socket(fileno=fd) as connection, suppress(OSError):  # no process or no memory at this moment
            server = os.getpid()
            pid = os.fork()
            if pid:
                self._pids[number] = pid
                return  # which closes the server's copy of the socket, so that the worker's end is an EOF
            try:
                self._be_worker(connection, server)
            finally:  # also when the parent has closed the connection
                os._exit(0)

    def _be_worker(self, connection: socket.socket, server: int) -> None:
        """Be a worker: the first message is its pid, what its sandbox lacks, and whether it is forked ready."""
        self._control.close()
        os.setpgid(0, 0)
        die_with_parent()
        if os.getppid() != server:  # it died before the line above took effect
            return
        # What a scorer prints goes nowhere: it could fill the server's file, or be taken for its last words.
        for fd in (0, 1, 2):
            os.dup2(self._nowhere, fd)
        missing: dict[str, str] = {}
        if self._limits[0]:  # else without a sandbox
            missing = self._sandbox.enter(*self._limits)
        if self._answerers:
            random.setstate(self._random_state)  # Python seeds anew after a fork; then equal calls had unequal values
        send(connection, [os.getpid(), missing, bool(self._answerers)])
        # A prepared server forks for fresh pools only, where nobody asks a worker twice.
        serve_requests(connection, self._answerers, is_last=bool(self._answerers))


def _kill(pid: int) -> None:
    """Kill a worker, and its process group if it has got that far."""
    # Both, always: just after the fork it has no group of its own yet, and later its children are in its group.
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except SystemExit as error:
        raise ImportError(f"{name} exits the program on import (sys.exit): is it a script?") from error
    except Exception as error:
        # The line of the module that failed, not of the machinery that imports it.
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
        place = ""
        if len(frames) > 1:
            place = f"{frames[-1].filename}:{frames[-1].lineno}: "
        raise ImportError(f"{place}{describe(error)}") from error


def main(control_fd: str, parent: str, memory_bytes: str, cpu_seconds: str, *modules: str) -> None:
    """Run the server with its command-line arguments. What it prepares comes from standard input."""
    # An import or the preparation may hang, and the loop that looks for the parent has not begun. The parent's thread
    # that started this process is its private one, which lasts as long as the parent.
    die_with_parent()
    if os.getppid() != int(parent):
        os._exit(0)
    # A program may ignore it, and its children inherit that: then the kernel reaps workers whose pid is still in use.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        for module in modules:  # an error shows now, not with the first answer
            _import(module)
        # After the imports: it notes which packages may be read.
        server = Server(socket.socket(fileno=int(control_fd)), int(parent), (int(memory_bytes), int(cpu_seconds)))
        preparation = sys.stdin.buffer.read()
        if preparation:
            server.prepare(*pickle.loads(preparation))
    except BaseException as error:
        _exit(error)
    gc.collect()
    gc.freeze()  # garbage collection in the workers then leaves shared pages shared
    server.serve()


def _may_pass(error: BaseException) -> bool:
    cause = error.__cause__ or error  # `_import` wraps what a module raised
    return isinstance(cause, MemoryError) or (isinstance(cause, OSError) and cause.errno in _PASSING)


def _exit(error: BaseException) -> NoReturn:
    """Exit with a last line, which `ForkServer` reads as the reason, although threads of a module may still run."""
    # `sys.exit` would wait for these threads.
    sys.stderr.write(f"{one_line(error)}\n")
    sys.stderr.flush()
    if _may_pass(error):
        os._exit(CANNOT_SERVE_NOW)
    os._exit(CANNOT_SERVE)


if __name__ == "__main__":
    main(*sys.argv[1:])
