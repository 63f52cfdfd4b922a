"""The scorer processes: `python -m rg_env.scoring.worker FD PARENT MEMORY SECONDS MODULES…` forks the workers.

Invariants:
- The fork server imports the modules once and never sees model output. A worker that hung or died is replaced within
  milliseconds by a new fork.
- No process outlives the one that asks: the fork server ends when that has ended. On Linux the kernel then kills its
  workers, even if they are stopped.
- A worker is killed and reaped when the parent says so, even before the worker has said a word, and never otherwise. So
  no other process gets a pid that the parent knows, and none is left as a zombie.

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
from typing import Any

from rg_env.errors import one_line
from rg_env.processes import die_with_parent
from rg_env.scoring.sandbox import Sandbox
from rg_env.user_code import import_named

Form = float | str
"""The result of scoring an answer in one form: a score in [0, 1], or one line saying how the scorer raised."""
Reply = float | str | list[Form] | dict[str, float]
Answerer = Callable[[bytes], Reply]
"""What a target makes in a worker: pickled arguments → reply. It raises for nothing that a model wrote."""

COMMAND = struct.Struct("!q")
"""On the control socket: the number of a worker, with a socket to fork it, without one to kill it."""
LONGEST_REASON = 200
_LOOKS_FOR_PARENT = 1.0


def serve_forks(control: socket.socket, parent: int, enter_sandbox: Callable[[], dict[str, str]]) -> None:
    """Fork and kill workers on the parent's commands until the parent is gone. Returns in the fork server only."""
    pids: dict[int, int] = {}
    control.settimeout(_LOOKS_FOR_PARENT)  # a forked child of the parent may still hold its end of the socket
    try:
        while os.getppid() == parent:
            try:
                command, fds, _, _ = socket.recv_fds(control, COMMAND.size, 1)
            except TimeoutError:
                continue
            if not command:
                break
            (number,) = COMMAND.unpack(command)
            if fds:
                with socket.socket(fileno=fds[0]) as connection:
                    pids[number] = _fork(control, connection, enter_sandbox)
            elif number in pids:
                _kill(pid := pids.pop(number))
                os.waitpid(pid, 0)
    except ConnectionError:
        pass  # the parent is gone
    finally:
        for pid in pids.values():
            _kill(pid)


def _fork(control: socket.socket, connection: socket.socket, enter_sandbox: Callable[[], dict[str, str]]) -> int:
    """Start a worker. Its first message is its pid and what its sandbox lacks; it does not return from here."""
    fork_server = os.getpid()
    if pid := os.fork():
        return pid
    try:
        control.close()
        os.setpgid(0, 0)
        die_with_parent()
        if os.getppid() == fork_server:  # otherwise it died before the line above took effect
            nowhere = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(nowhere, fd)
            _send(connection, [os.getpid(), enter_sandbox()])
            serve_requests(connection)
    finally:  # also when the parent has closed the connection
        os._exit(0)


def _kill(pid: int) -> None:
    """Kill a worker, and its process group if it has got that far."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def serve_requests(connection: socket.socket) -> None:
    """Serve requests, pickled pairs of target and arguments, until the other end closes (EOFError).

    A target is a pickle of (module, function, …): the function makes an `Answerer` of the rest, once, for a request
    without arguments; the reply is 0.0, or the reason why it could not. Every other reply is that of the answerer.
    """
    answerers: dict[bytes, Answerer] = {}
    requests = connection.makefile("rb")
    while True:
        target, arguments = pickle.load(requests)
        if arguments:
            _send(connection, answerers[target](arguments))
            continue
        try:
            module, function, *rest = pickle.loads(target)
            answerers[target] = getattr(importlib.import_module(module), function)(*rest)
            _send(connection, 0.0)
        except Exception as error:
            _send(connection, reason_for(error))


def _send(connection: socket.socket, message: object) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


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


# -- Reasoning Gym's scorers

UPSTREAM_MODULES = ["reasoning_gym", "rg_env.tasks.soundness", "rg_env.scoring.worker"]
"""What `make_scorer` needs. It imports two of them itself, so that other targets do without."""


def make_scorer(task: str, options: dict[str, Any]) -> Callable[[bytes], list[Form] | str]:
    """What scores answers to this task: pickled (entry, raw, tagged) → both forms. Raises if there is none.

    If the scorer raises on an answer and on the item's own as well, the item is at fault, and the reply is the reason.
    Otherwise the answer is. The scorers of seven tasks read the options of their dataset; none reads its items, so the
    size is 1.
    """
    import reasoning_gym

    from rg_env.tasks.soundness import check_audited

    check_audited()
    dataset = reasoning_gym.create_dataset(task, **{**options, "size": 1, "seed": 0})

    def score(request: bytes) -> list[Form] | str:
        try:
            entry, raw, tagged = pickle.loads(request)
        except Exception as error:  # the entry has something that this process cannot make
            return reason_for(error)
        own = entry.get("answer")
        # A scorer may change the entry, so each form gets a new one.
        forms = [score_form(dataset, entry, raw), score_form(dataset, pickle.loads(request)[0], tagged)]
        if any(isinstance(form, str) for form in forms):
            own_form = score_form(dataset, pickle.loads(request)[0], own if isinstance(own, str) else "")
            if isinstance(own_form, str):
                return f"it raises on the item's own answer, too: {own_form}"
        return forms

    return score


def score_form(dataset: Any, entry: dict[str, Any], text: str) -> Form:
    """Score one form of an answer; numbers beyond [0, 1] are clamped. Returns for every exception, even SystemExit."""
    try:
        value = dataset.score_answer(text, entry)
        if (number := number_of(value)) is None:
            return f"the scorer returned {value!r:.60}, which is not a score"
        return min(1.0, max(0.0, number))
    except BaseException as error:
        return reason_for(error)


# -- the program


def main(control_fd: str, parent: str, memory_bytes: str, cpu_seconds: str, *modules: str) -> None:
    """Run the fork server with its command-line arguments. Without memory limit (0) the workers have no sandbox."""
    import_named(modules)  # an error shows now, not with the first answer
    sandbox = Sandbox()
    gc.collect()
    gc.freeze()  # garbage collection in the workers then leaves shared pages shared
    limits = int(memory_bytes), int(cpu_seconds)
    control = socket.socket(fileno=int(control_fd))
    serve_forks(control, int(parent), lambda: sandbox.enter(*limits) if limits[0] else {})


if __name__ == "__main__":
    main(*sys.argv[1:])
