"""Runs a command in a process that it watches. This is the only place that handles the signals of such a command.

The supervisor is the process that was started; it shows the run. The work is done by a fork in its own session, which
the terminal's signals do not reach, so that Ray never sees one: a pipe tells the fork to stop, and closes by itself if
the supervisor is killed.

Invariant: however the run ends, the supervisor leaves no process and no temporary folder behind. The first signal lets
the run close its dump; a second one ends it within seconds. The exit code is 0, 1 (failed), 2 (wrong settings), or
128 + N after signal N.
Not covered: processes on other machines, which Ray ends itself, and, except on Linux, processes whose parent died.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import psutil

from rg_env.errors import RGEnvError, one_line
from rg_env.processes import adopt_orphans
from rg_env.terminal.display import Lines
from rg_env.terminal.reports import SCRATCH, Inbox, Reports, report_warnings
from rg_env.terminal.state import RunState

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PATIENCE = (30.0, 10.0, 0.0)
"""Seconds that the run has to end after the first, second and third signal."""
_STRAGGLERS = 5.0
"""Seconds that other processes have to end after a successful run."""
_UNKILLABLE = 10.0
"""Seconds after which a killed process is given up, because it waits for a device."""
_POLL = 0.1
_ERROR_CHARS = 500
_ENVIRONMENT = {"RAY_COLOR_PREFIX": "0", "RAY_DEDUP_LOGS": "0", "TQDM_DISABLE": "1"}
"""For a log that is complete and plain. Ray and tqdm read them when imported."""
EARLY_OUTPUT = "output.log"
"""File in the scratch folder: what the run prints before its log is open."""
_LONGEST_TEMP = 30
"""Maximum length of the path of temporary folders: Ray's socket paths are about 77 characters longer, and the limit is
107 bytes."""


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        exit_code: of the command line.
        signum: the signal that ended it, or None.
        result: what the command returned; None unless it was successful.
    """

    exit_code: int
    signum: int | None
    result: Any = None


def supervise(command: Callable[[], Any], state: RunState, display: Lines) -> Ended:
    """Run `command` in another process, show it, and clean up after it.

    Args:
        command: returns something picklable.
        state: kept up to date with what the command reports.
    """
    scratch = _make_scratch()
    received: list[int] = []
    before = {signum: signal.getsignal(signum) for signum in _SIGNALS}
    handled = [signum for signum, handler in before.items() if handler is not signal.SIG_IGN]  # nohup ignores SIGHUP
    for signum in handled:
        signal.signal(signum, lambda number, _: received.append(number))
    try:
        status = _run(command, scratch, state, display, received)
        if status == 0:
            return Ended(0, None, pickle.loads((scratch / "result").read_bytes()))
        if received:
            return Ended(128 + received[0], received[0])
        if state.error is None:
            state.error = f"the process of the run ended with {_in_words(status)}"
        return Ended(2 if status == 2 else 1, None)
    finally:
        state.has_ended = True
        shutil.rmtree(scratch, ignore_errors=True)
        for signum in handled:  # an interrupted command is about to end: further signals change nothing
            signal.signal(signum, signal.SIG_IGN if received else before[signum])


def _run(command: Callable[[], Any], scratch: Path, state: RunState, display: Lines, received: list[int]) -> int:
    """The exit code of the work, or -N if signal N killed it. Nothing that it started is left."""
    adopt_orphans()
    stop_read, stop_write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(stop_write)
        _work(command, scratch, stop_read)
    os.close(stop_read)
    status = -signal.SIGKILL
    try:
        status = _watch(pid, Inbox(scratch / "reports.jsonl"), state, display, received, stop_write)
    finally:
        end_descendants(_STRAGGLERS if status == 0 else 0.0)
    return status


def _in_words(status: int) -> str:
    return f"exit code {status}" if status >= 0 else signal.Signals(-status).name


def _watch(pid: int, inbox: Inbox, state: RunState, display: Lines, received: list[int], stop_write: int) -> int:
    """Show the run until its process ends, or until its time is up after a signal."""
    answered, deadline = 0, float("inf")
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        for report in inbox.new():
            state.add(report)
            display.take(report)
        display.tick()
        if found:
            return os.waitstatus_to_exitcode(status)
        if len(received) > answered:
            if not answered:
                with suppress(BrokenPipeError):  # it has just ended
                    os.write(stop_write, b"s")
                state.stopping = signal.Signals(received[0]).name
                display.line(f"{state.stopping}: stopping; a second signal ends the run within 10 s, a third at once")
            answered = len(received)
            deadline = min(deadline, time.monotonic() + _PATIENCE[min(answered, len(_PATIENCE)) - 1])
        if time.monotonic() > deadline:
            return -signal.SIGKILL
        time.sleep(_POLL)


def end_descendants(patience: float) -> None:
    """Wait for all processes below this one, and kill those that are left after `patience` seconds."""
    deadline = time.monotonic() + patience
    while (children := psutil.Process().children(recursive=True)) and time.monotonic() < deadline + _UNKILLABLE:
        if time.monotonic() > deadline:
            for child in children:
                with suppress(psutil.Error):
                    child.kill()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.02)


def ray_folder() -> Path:
    """A new folder for Ray, which the supervisor of this process removes if it has one."""
    scratch = os.environ.get(SCRATCH)
    if scratch is None:
        return _make_scratch()
    folder = Path(scratch, "r")
    folder.mkdir()
    return folder


def _make_scratch() -> Path:
    """A temporary folder with a path that is short enough for Ray's sockets."""
    usual = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="rg", dir=usual if len(usual) <= _LONGEST_TEMP else "/tmp"))


class _Stop:
    """What the supervisor wants, inside the process that does the work.

    Attributes:
        is_deferred: there is something to close first; otherwise the process ends at once.
    """

    def __init__(self) -> None:
        self.requested = threading.Event()
        self.is_deferred = False
        self._scratch: Path | None = None

    def listen(self, stop_read: int, scratch: Path) -> None:
        """Wait for the supervisor to send a byte, or to end without one."""
        is_alive = bool(os.read(stop_read, 1))
        self._scratch = None if is_alive else scratch
        self.requested.set()
        if not self.is_deferred:
            self.end(1)

    def end(self, code: int) -> NoReturn:
        """End this process, and if the supervisor cannot, remove the scratch folder."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        os._exit(code)

    @contextmanager
    def on_sigterm(self) -> Iterator[None]:
        """A scheduler may end all processes of a job with SIGTERM, for which Ray has a handler that aborts."""
        before = signal.signal(signal.SIGTERM, lambda *_: self.requested.set())
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)


stop = _Stop()
"""Work that has something to close when it is stopped sets `is_deferred` and looks at `requested` from then on."""


def _work(command: Callable[[], Any], scratch: Path, stop_read: int) -> NoReturn:
    """Run the command in this process, which is a fork, and end the process."""
    code = 1
    try:
        os.setsid()
        for signum in _SIGNALS:
            signal.signal(signum, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # with which Ray cancels a task
        os.environ.update({SCRATCH: str(scratch), **_ENVIRONMENT})
        redirect_output(scratch / EARLY_OUTPUT)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        threading.Thread(target=stop.listen, args=(stop_read, scratch), daemon=True).start()
        report_warnings(Reports.of_this_process())
        code = _call(command, scratch)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        stop.end(code)


def _call(command: Callable[[], Any], scratch: Path) -> int:
    reports = Reports.of_this_process()
    try:
        result = command()
    except RGEnvError as error:
        reports.send("error", text=str(error))
        return 2
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        traceback.print_exc()
        reports.send("error", text=_last_line(error))
        return 1
    (scratch / "result").write_bytes(pickle.dumps(result))
    return 0


def _last_line(error: Exception) -> str:
    """The last line of an exception: Ray's begin with the traceback of another process."""
    last = (str(error).strip().splitlines() or [""])[-1]
    return one_line(last if str(error).count("\n") else f"{type(error).__name__}: {last}", _ERROR_CHARS)


def redirect_output(path: Path) -> None:
    """Append to a file what this process and its libraries print."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for descriptor in (1, 2):
        os.dup2(file, descriptor)
    os.close(file)
