"""Runs a command in a process that it watches. This is the only place that handles the signals of such a command.

The supervisor is the process that was started; it shows the run. The work is done by a fork in its own session, which
the terminal's signals do not reach, so that Ray never sees one. SIGTERM stops the fork; the kernel sends it if the
supervisor is killed. By default it ends the fork at once; work that has something to close handles it for as long.

Invariant: however the run ends, the supervisor leaves no process and no temporary folder behind. The first signal lets
the run close its dump; a second one ends it within seconds. The exit code is 0, 1 (failed), 2 (wrong settings), or
128 + N after signal N.
Not covered: processes on other machines, which Ray ends itself; except on Linux, processes whose parent died; and what
is left when the supervisor is killed before the work has something to close: its temporary folder.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import psutil

from rg_env.errors import MissingGroupsError, RGEnvError, one_line
from rg_env.processes import SCRATCH, adopt_orphans, die_with_parent, make_scratch, redirect_output
from rg_env.terminal.reports import VERBOSE, Reports
from rg_env.terminal.screen import Screen

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PATIENCE = (30.0, 10.0, 0.0)
"""Seconds that the run has to end after the first, second and third signal."""
_STRAGGLERS = 5.0
"""Seconds that other processes have to end after a successful run."""
_UNKILLABLE = 10.0
"""Seconds after which a killed process is given up, because it waits for a device."""
_POLL, _READ = 0.1, 1 << 20
_ERROR_CHARS = 500
_ENVIRONMENT = {"RAY_COLOR_PREFIX": "0", "RAY_DEDUP_LOGS": "0", "TQDM_DISABLE": "1"}
"""For a log that is complete and plain. Ray and tqdm read them when imported."""


@dataclass(frozen=True)
class Ended:
    """How a command ended: by which signal, if by one."""

    exit_code: int
    signum: int | None


def supervise(command: Callable[[], object], screen: Screen, *, verbose: bool = False) -> Ended:
    """Run `command` in another process, show it, and clean up after it.

    Args:
        verbose: the process prints to this one's standard streams; otherwise, until it opens a log, to nowhere.
    """
    scratch, received = make_scratch(), list[int]()
    os.mkfifo(scratch / "reports", 0o600)
    reports = os.open(scratch / "reports", os.O_RDWR | os.O_NONBLOCK)  # open for writing, too, so that it never ends
    before = {signum: signal.getsignal(signum) for signum in _SIGNALS}
    handled = [signum for signum, handler in before.items() if handler is not signal.SIG_IGN]  # nohup ignores SIGHUP
    for signum in handled:
        signal.signal(signum, lambda number, _: received.append(number))
    adopt_orphans()
    sys.stdout.flush()
    sys.stderr.flush()
    supervisor, pid = os.getpid(), os.fork()
    if pid == 0:
        _work(command, scratch, supervisor, verbose)
    status = -signal.SIGKILL
    try:
        try:
            status = _watch(pid, reports, screen, received)
        finally:
            end_descendants(_STRAGGLERS if status in (0, MissingGroupsError.exit_code) else 0.0)
        if status in (0, MissingGroupsError.exit_code):
            return Ended(status, None)
        if received:
            return Ended(128 + received[0], received[0])
        how = f"exit code {status}" if status > 0 else signal.Signals(-status).name
        screen.facts.setdefault("error", f"the process of the run ended with {how}")
        return Ended(2 if status == 2 and not screen.facts.get("under_way") else 1, None)
    finally:
        os.close(reports)
        shutil.rmtree(scratch, ignore_errors=True)
        for signum in handled:  # an interrupted command is about to end: further signals change nothing
            signal.signal(signum, signal.SIG_IGN if received else before[signum])


def _watch(pid: int, reports: int, screen: Screen, received: list[int]) -> int:
    """Show the run until its process ends, or until its time is up after a signal.

    Returns:
        the exit code, or -N if signal N killed it.
    """
    answered, deadline, unread = 0, float("inf"), b""
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        with suppress(BlockingIOError):  # nothing was sent
            unread += os.read(reports, _READ)
        *lines, unread = unread.split(b"\n")
        for line in lines:
            with suppress(ValueError):  # too long to be sent in one write
                screen.take(json.loads(line))
        screen.tick()
        if found:
            return os.waitstatus_to_exitcode(status)
        if received and not answered:
            os.kill(pid, signal.SIGTERM)
            name = signal.Signals(received[0]).name
            screen.line(f"{name}: stopping; a second signal ends the run within 10 s, a third at once")
        if len(received) > answered:
            answered = len(received)
            deadline = min(deadline, time.monotonic() + _PATIENCE[min(answered, len(_PATIENCE)) - 1])
        time.sleep(_POLL)
    return -signal.SIGKILL


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


def _work(command: Callable[[], object], scratch: Path, supervisor: int, verbose: bool) -> NoReturn:
    """Run the command in this process, which is a fork, and end the process."""
    code = 1
    try:
        os.setsid()
        for signum in _SIGNALS:
            signal.signal(signum, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # with which Ray cancels a task
        die_with_parent(signal.SIGTERM)
        os.environ.update({SCRATCH: str(scratch), **_ENVIRONMENT})
        if verbose:
            os.environ[VERBOSE] = "1"
        else:
            redirect_output(Path(os.devnull))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        Reports.of_this_process().send_warnings()
        code = _call(command)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        if os.getppid() != supervisor:  # it cannot remove the folder
            shutil.rmtree(scratch, ignore_errors=True)
        os._exit(code)


def _call(command: Callable[[], object]) -> int:
    reports = Reports.of_this_process()
    try:
        command()
    except RGEnvError as error:
        reports.send(error=str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        traceback.print_exc()
        reports.send(error=_last_line(error))
        return 1
    return 0


def _last_line(error: Exception) -> str:
    """The last line of an exception: Ray's begin with the traceback of another process."""
    last = (str(error).strip().splitlines() or [""])[-1]
    return one_line(last if str(error).count("\n") else f"{type(error).__name__}: {last}", _ERROR_CHARS)
