"""The scorer processes: `python -m rg_env.scoring.workers.worker FD MEMORY SECONDS [--guest]` forks the workers.

Invariants:
- The fork server imports what scorers need once and never sees model output. A worker that hung or died is replaced
  within milliseconds by a new fork.
- No process outlives the one that asks: the fork server kills its workers and ends when its control socket is closed.
  On Linux the kernel also kills the fork server with its parent, and the workers with the fork server, even if they are
  stopped.
- A pid that the parent holds is never reused: a worker is reaped only when the parent has it killed.
- Users' modules are imported only with `--guest`, so they share no process with reasoning-gym's tasks.

Not covered: the reply of a worker. Code that runs in a worker can give *its own* answer any score, so
`rg_env.scoring.guard` lets no answer reach a scorer that evaluates.
"""

from __future__ import annotations

import gc
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

from rg_env.processes import die_with_parent
from rg_env.scoring.sandbox.sandbox import Sandbox
from rg_env.scoring.types import Form
from rg_env.scoring.workers.protocol import reply_of
from rg_env.tasks.audited import check_audited
from rg_env.user_code import import_inherited

GUEST = "--guest"
PID = struct.Struct("!q")
"""On the control socket. The parent writes 0 with a socket, for a new worker, or the pid of a worker to kill. The fork
server writes 0 when it is ready, and for each new worker its pid, or a negative errno."""


def serve_forks(control: socket.socket, enter_sandbox: Callable[[], None]) -> None:
    """Fork and kill workers on the parent's commands until the parent is gone. Returns in the fork server only."""
    children: set[int] = set()
    try:
        control.sendall(PID.pack(0))
        while True:
            message, fds, _, _ = socket.recv_fds(control, PID.size, 1)
            if not message:
                break
            (pid,) = PID.unpack(message)
            if fds:
                with socket.socket(fileno=fds[0]) as connection:
                    pid = _fork(control, connection, enter_sandbox)
                children |= {pid} if pid > 0 else set()
                control.sendall(PID.pack(pid))
            elif pid in children:
                children.remove(pid)
                _kill(pid)
                os.waitpid(pid, 0)
    except OSError:
        pass  # the parent is gone
    finally:
        for pid in children:
            _kill(pid)


def _fork(control: socket.socket, connection: socket.socket, enter_sandbox: Callable[[], None]) -> int:
    """The pid of a new worker, or a negative errno."""
    fork_server = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        return -(error.errno or 1)
    if pid == 0:
        control.close()
        _be_worker(connection, fork_server, enter_sandbox)
    return pid


def _kill(pid: int) -> None:
    """Kill a worker and everything in its process group, of which it may not be the leader yet."""
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
            serve_answers(connection)
    except (EOFError, OSError):
        pass  # the parent closed the connection
    finally:
        os._exit(0)


def serve_answers(connection: socket.socket) -> None:
    """Serve requests one by one until the other end closes (EOFError).

    `(key, (task, options))` prepares a scorer, which later requests refer to as `key`; the reply's forms are 0.0, or
    the reason why there is no such scorer. `(key, entry, raw, tagged)` scores both texts; the entry is itself pickled,
    so that each gets a fresh copy.
    """
    scorers: dict[bytes, Any] = {}
    requests = connection.makefile("rb")
    while True:
        match pickle.load(requests):
            case (key, (task, options)):
                made = make_scorer(task, options)
                if isinstance(made, str):
                    reply = reply_of(made, made)
                else:
                    scorers[key] = made
                    reply = reply_of(0.0, 0.0)
            case (key, entry, raw, tagged):
                reply = reply_of(score_form(scorers[key], entry, raw), score_form(scorers[key], entry, tagged))
        connection.sendall(reply)


def make_scorer(task: str, options: dict[str, Any]) -> Any:
    """The dataset object whose `score_answer` scores this task, or one line saying why there is none.

    The scorers of seven tasks read the options of their dataset; none reads its items, so the size is 1.
    """
    import reasoning_gym

    try:
        check_audited()
        return reasoning_gym.create_dataset(task, **{**options, "size": 1, "seed": 0})
    except BaseException as error:
        return _describe(error)


def score_form(scorer: Any, entry: bytes, text: str) -> Form:
    """Score one form of an answer with a copy of the entry. Returns for every exception, SystemExit included."""
    try:
        return as_score(scorer.score_answer(text, pickle.loads(entry)))
    except BaseException as error:
        return _describe(error)


def as_score(value: Any) -> Form:
    """A scorer's result as a float in [0, 1]. Integers, booleans and NumPy numbers are accepted; the range is clamped.

    >>> as_score(1.0000000000000002), as_score(True), as_score(float("nan"))
    (1.0, 1.0, 'the scorer returned nan, which is not a score')
    """
    number = value.item() if type(value).__module__ == "numpy" else value
    if isinstance(number, numbers.Real) and math.isfinite(number):
        return min(1.0, max(0.0, float(number)))
    return f"the scorer returned {value!r:.60}, which is not a score"


def _describe(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:  # an exception class that the answer defined
        return type(error).__name__


def main(control_fd: str, memory_bytes: str, cpu_seconds: str, *guest: str) -> None:
    """Run the fork server with its command-line arguments."""
    die_with_parent()
    import reasoning_gym  # noqa: F401  (an error in it shows now, not with the first answer)

    if GUEST in guest:
        import_inherited()
    sandbox = Sandbox()
    gc.collect()
    gc.freeze()  # garbage collection in the workers then leaves shared pages shared
    serve_forks(socket.socket(fileno=int(control_fd)), lambda: sandbox.enter(int(memory_bytes), int(cpu_seconds)))


if __name__ == "__main__":
    main(*sys.argv[1:])
