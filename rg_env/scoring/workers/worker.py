"""The scorer processes: `python -m rg_env.scoring.workers.worker FD MEMORY SECONDS MODULES…` forks the workers.

Invariants:
- The fork server imports the modules once and never sees model output. A worker that hung or died is replaced within
  milliseconds by a new fork.
- No process outlives the one that asks: the fork server ends when that has ended. On Linux the kernel then kills its
  workers, even if they are stopped.
- A pid that the parent holds is never reused: a worker is reaped only when the parent has it killed.

Not covered: the reply of a worker. Code that runs in a worker can give *its own* answer any score, so
`rg_env.scoring.guard` lets no answer reach a scorer that evaluates.
"""

from __future__ import annotations

import gc
import importlib
import json
import math
import numbers
import os
import pickle
import signal
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from rg_env.errors import one_line
from rg_env.processes import die_with_parent
from rg_env.scoring.sandbox.sandbox import Sandbox
from rg_env.user_code import import_named

Reply = float | str | list[float | str] | dict[str, float]
Answerer = Callable[[bytes], Reply]
"""What a target makes in a worker: pickled arguments → reply. It raises for nothing that a model wrote."""

MESSAGE = struct.Struct("!q")
"""On the control socket: 0 with the socket of a new worker, or the pid of a worker to kill. A worker's first message is
its pid."""
LONGEST_REASON = 200
_LOOKS_FOR_PARENT = 1.0


def serve_forks(control: socket.socket, enter_sandbox: Callable[[], None]) -> None:
    """Fork and kill workers on the parent's commands until the parent is gone. Returns in the fork server only."""
    children: set[int] = set()
    parent = os.getppid()
    control.settimeout(_LOOKS_FOR_PARENT)  # a forked child of the parent may still hold its end of the socket
    try:
        while os.getppid() == parent:
            try:
                message, fds, _, _ = socket.recv_fds(control, MESSAGE.size, 1)
            except TimeoutError:
                continue
            if not message:
                break
            (pid,) = MESSAGE.unpack(message)
            if fds:
                with socket.socket(fileno=fds[0]) as connection:
                    children.add(_fork(control, connection, enter_sandbox))
            elif pid in children:
                children.remove(pid)
                _kill(pid)
                os.waitpid(pid, 0)
    except ConnectionError:
        pass  # the parent is gone
    finally:
        for pid in children:
            _kill(pid)


def _fork(control: socket.socket, connection: socket.socket, enter_sandbox: Callable[[], None]) -> int:
    fork_server = os.getpid()
    pid = os.fork()
    if pid == 0:
        control.close()
        _be_worker(connection, fork_server, enter_sandbox)
    return pid


def _kill(pid: int) -> None:
    """Kill a worker, and its process group if it has got that far."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def _be_worker(connection: socket.socket, fork_server: int, enter_sandbox: Callable[[], None]) -> NoReturn:
    """Run a worker, from fork to exit."""
    try:
        os.setpgid(0, 0)
        die_with_parent()
        if os.getppid() == fork_server:  # otherwise it died before the line above took effect
            nowhere = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(nowhere, fd)
            enter_sandbox()
            connection.sendall(MESSAGE.pack(os.getpid()))
            serve_requests(connection)
    except (EOFError, OSError):
        pass  # the parent closed the connection
    finally:
        os._exit(0)


def serve_requests(connection: socket.socket) -> None:
    """Serve requests one by one until the other end closes (EOFError).

    A request is a pickle of (target, arguments), both pickled themselves. The target is (module, function, …): the
    function makes an `Answerer` of the rest, once, for a request whose arguments are None; the reply is 0.0, or the
    reason why it could not. Every other reply is that of the answerer.
    """
    answerers: dict[bytes, Answerer] = {}
    requests = connection.makefile("rb")
    while True:
        target, arguments = pickle.load(requests)
        if arguments is None:
            reply: Reply = 0.0
            try:
                module, function, *rest = pickle.loads(target)
                answerers[target] = getattr(importlib.import_module(module), function)(*rest)
            except Exception as error:
                reply = reason_for(error)
        else:
            reply = answerers[target](arguments)
        connection.sendall(json.dumps(reply).encode() + b"\n")


def reason_for(error: BaseException) -> str:
    """An exception of a scorer as one line of bounded length. Never raises."""
    try:
        return one_line(f"{type(error).__name__}: {error}", LONGEST_REASON)
    except BaseException:  # an exception class that the answer defined
        return type(error).__name__[:LONGEST_REASON]


def number_of(value: Any) -> float | None:
    """A finite number as a float, whatever type of number or scalar array it is; None for anything else.

    >>> number_of(True), number_of(float("nan")), number_of("1.0")
    (1.0, None, None)
    """
    value = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value  # NumPy, torch
    if not isinstance(value, numbers.Real):
        return None
    with suppress(OverflowError):
        return number if math.isfinite(number := float(value)) else None
    return None


def main(control_fd: str, memory_bytes: str, cpu_seconds: str, *modules: str) -> None:
    """Run the fork server with its command-line arguments. Without memory limit (0) the workers have no sandbox."""
    import_named(modules)  # an error shows now, not with the first answer
    sandbox = Sandbox()
    gc.collect()
    gc.freeze()  # garbage collection in the workers then leaves shared pages shared
    limits = int(memory_bytes), int(cpu_seconds)
    serve_forks(socket.socket(fileno=int(control_fd)), lambda: sandbox.enter(*limits) if limits[0] else None)


if __name__ == "__main__":
    main(*sys.argv[1:])
