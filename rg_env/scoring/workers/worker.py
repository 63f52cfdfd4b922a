"""The scorer processes: `python -m rg_env.scoring.workers.worker FD` is a fork server, and its forks are the workers.

Invariants:
- The fork server imports reasoning-gym once and never sees model output: it scores only items that it made itself. A
  worker that timed out, died or scored an answer that may call a function is replaced within milliseconds by a new,
  clean fork.
- No process outlives the trainer: the fork server kills its workers and ends when its control socket is closed or its
  parent is gone. On Linux the kernel also kills the fork server when the trainer dies, and the workers when the fork
  server dies, even if they are stopped. A waiting worker ends with its socket.
- A pid that the trainer holds is never reused: dead workers are reaped only after the trainer has released them.

Each worker is under the measures of `rg_env.scoring.sandbox` that the system offers. The fork server has a fork try
them first and reports the result to the trainer. stdin, stdout and stderr are /dev/null. Not covered: the reply of a
worker. Code that runs in a worker can give *its own* answer any score, so `rg_env.scoring.guard` keeps code out.
"""

from __future__ import annotations

import gc
import math
import numbers
import os
import pickle
import select
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

from rg_env.processes import die_with_parent
from rg_env.scoring.guard import CALLING_TASKS, EVALUATING_TASKS
from rg_env.scoring.sandbox.sandbox import Sandbox
from rg_env.scoring.types import Form
from rg_env.scoring.workers.cheap_forks import share_names, use_huge_pages
from rg_env.scoring.workers.protocol import (
    COMMAND,
    FORK,
    FORKED,
    encode_measures,
    encode_reply,
    recv_frame,
    send_frame,
)
from rg_env.tasks.audited import check_audited
from rg_env.user_code import import_inherited

_MAX_REQUEST_BYTES = 1 << 28
_PARENT_CHECK_SECONDS = 2.0
_MANY_FORKS = 64
"""After so many, what huge pages save is more than what they cost."""
_PROBED_MEMORY, _PROBED_SECONDS = 1 << 30, 5
"""The limits under which the measures are tried. The values don't matter."""


def serve_forks(control: socket.socket) -> None:
    """Fork and kill workers on the trainer's commands until the trainer is gone. Returns in the fork server only."""
    trainer, fork_server = os.getppid(), os.getpid()
    die_with_parent()
    _warm_up()
    sandbox = Sandbox()
    forks = 0
    gc.collect()
    gc.freeze()  # garbage collection in the workers then leaves shared pages shared
    children: set[int] = set()
    dying: set[int] = set()
    try:
        send_frame(control, encode_measures(sandbox.probe(_PROBED_MEMORY, _PROBED_SECONDS)))
        while os.getppid() == trainer:
            dying = {pid for pid in dying if os.waitpid(pid, os.WNOHANG) == (0, 0)}
            if not select.select([control], [], [], _PARENT_CHECK_SECONDS)[0]:
                continue
            message, fds, _, _ = socket.recv_fds(control, COMMAND.size, 1)
            if not message:
                break
            command, pid, memory, seconds = COMMAND.unpack(message)
            if command == FORK:
                forks += 1
                if forks == _MANY_FORKS:
                    use_huge_pages()
                with socket.socket(fileno=fds[0]) as connection:
                    try:
                        pid = os.fork()
                    except OSError as error:
                        pid = -(error.errno or 1)
                    if pid == 0:
                        control.close()
                        _be_worker(connection, fork_server, partial(sandbox.enter, memory, seconds))
                if pid > 0:
                    children.add(pid)
                    with suppress(OSError):  # both sides do this, so the order does not matter
                        os.setpgid(pid, pid)
                send_frame(control, FORKED.pack(pid))
            elif pid in children:
                children.remove(pid)
                dying.add(pid)
                _kill_group(pid)
    except OSError:
        pass  # the trainer is gone
    finally:
        for pid in children:
            _kill_group(pid)


_trusted: dict[str, dict[str, Any]] = {}
"""Task whose answers may call functions → an item of it, made here."""


def _warm_up() -> None:
    """Import what scorers need. For tasks whose answers may need a new fork each, scoring one trusted item of each now
    saves every fork what sympy imports and computes on first use."""
    import reasoning_gym  # noqa: F401  (an error in it shows now, not with the first answer)

    import_inherited()
    for task in sorted(CALLING_TASKS):
        with suppress(Exception):  # a scorer that fails reports it when it is used
            dataset = make_scorer(task, {})
            item = _trusted[task] = dataset[0]
            dataset.score_answer(item["answer"], item)


def _kill_group(pid: int) -> None:
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
            os.close(nowhere)
            enter_sandbox()
            serve_answers(connection)
    except (EOFError, OSError):
        pass  # the trainer closed the connection
    finally:
        os._exit(0)


def serve_answers(connection: socket.socket) -> None:
    """Serve requests one by one until the other end closes.

    `(key, (task, options), guarded)` prepares a scorer, which later requests refer to as `key`; `guarded`: the guard
    lets all answers pass first. `(key, entry, answer)` scores; the entry is itself pickled, so that each form gets a
    fresh copy. Both are replied to with `encode_reply`; to the former, the forms are 0.0, or the reason why there is no
    such scorer.
    """
    scorers: dict[bytes, Any] = {}
    while True:
        match pickle.loads(recv_frame(connection, _MAX_REQUEST_BYTES)):
            case (key, (task, options), bool(guarded)):
                made = make_scorer(task, options)
                if not isinstance(made, str):
                    scorers[key] = made
                    _touch(task, made, guarded)
                reply = encode_reply(made, made) if isinstance(made, str) else encode_reply(0.0, 0.0)
            case (key, entry, answer):
                # Tagged first: no scorer can run `<answer>` as code, so this form cannot affect the other.
                tagged = score_form(scorers[key], entry, f"<answer>{answer}</answer>")
                reply = encode_reply(score_form(scorers[key], entry, answer), tagged)
            case other:
                raise ValueError(f"not a request: {other!r:.60}")
        send_frame(connection, reply)


def _touch(task: str, scorer: Any, guarded: bool) -> None:
    """Score a trusted item, so that an answer finds in this process what it would otherwise wait for."""
    if task in EVALUATING_TASKS and guarded:
        share_names()
    if item := _trusted.get(task):
        score_form(scorer, pickle.dumps(item), item["answer"])


def make_scorer(task: str, options: dict[str, Any]) -> Any:
    """The dataset object whose `score_answer` scores this task, or one line saying why there is none.

    The scorers of seven tasks read the options of their dataset; none reads its items, so the size is 1. The scorers of
    a version that was not audited are refused.
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


if __name__ == "__main__":
    serve_forks(socket.socket(fileno=int(sys.argv[1])))
