"""Runs a command in another process, shows it, and cleans up after it. The only place that handles a run's signals.

The supervisor is the process that was started. The work is done by a fork in a session of its own, which the terminal's
signals do not reach, so that Ray never sees one. SIGTERM stops the fork; the kernel sends it if the supervisor is
killed. By default it ends the fork at once; work that has something to close handles it for as long.

Invariant: however the run ends, the supervisor leaves no process and no temporary folder behind. The first signal lets
the run close its dump; a second one ends it within seconds.
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
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import psutil

from rg_env.base.errors import RGEnvError, one_line
from rg_env.base.processes import SCRATCH, STOPPED_BY, adopt_orphans, die_with_parent, make_scratch, redirect_output
from rg_env.terminal.reports import VERBOSE, Reports
from rg_env.terminal.screen import AT_THE_END, Screen

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PATIENCE = (30.0, 10.0, 0.0)
"""Seconds that the run has to end after the first, second and third signal."""
_STRAGGLERS, _UNKILLABLE = 5.0, 10.0
"""Seconds that other processes have to end after a successful run, and after a kill, if they wait for a device."""
_POLL, _READ = 0.1, 1 << 20
_ENVIRONMENT = {"RAY_COLOR_PREFIX": "0", "RAY_DEDUP_LOGS": "0", "TQDM_DISABLE": "1"}
"""For a log that is complete and plain. Ray and tqdm read them when imported."""


def supervise(work: Callable[[], object], screen: Screen) -> int:
    """Do the work in another process, show it, and clean up after it.

    Returns:
        the exit code: 0; 1 after a failure; 2 after a wrong setting; 3 if groups are missing from the dump; 128 + N
        after signal N. `screen.facts["error"]` has what went wrong.
    """
    scratch = make_scratch()
    os.mkfifo(scratch / "reports", 0o600)
    pipe = os.open(scratch / "reports", os.O_RDWR | os.O_NONBLOCK)  # open for writing, too, so that it never ends
    # Handlers come before the fork, so that no signal is lost. They only note it: `_watch` acts on it.
    received: list[tuple[float, int]] = []
    before = {signum: signal.getsignal(signum) for signum in _SIGNALS}
    handled = [signum for signum, handler in before.items() if handler is not signal.SIG_IGN]  # nohup ignores SIGHUP
    for signum in handled:
        signal.signal(signum, lambda number, _: received.append((time.monotonic(), number)))
    adopt_orphans()  # what a dead child of the run leaves becomes ours, so that `end_descendants` finds it
    # Text that is still buffered would be printed twice, by the fork and by this process.
    sys.stdout.flush()
    sys.stderr.flush()
    # A launcher may ignore it, which children inherit: then the kernel reaps the fork, and its exit code is lost.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        _work(work, scratch, supervisor, screen.verbose)  # does not return
    status = -signal.SIGKILL  # stays if `_watch` raises: then nobody waits for the processes of the run
    try:
        status = _watch(pid, pipe, scratch, screen, received)
    finally:
        end_descendants(_STRAGGLERS if status in AT_THE_END else 0.0)
        os.close(pipe)
        shutil.rmtree(scratch, ignore_errors=True)
        for signum in handled:  # an interrupted command is about to end: further signals change nothing
            signal.signal(signum, signal.SIG_IGN if received else before[signum])
    # The run's own end counts before a signal: 0 if it finished all the same, 3 if groups are missing.
    if status in AT_THE_END:
        return status
    if received:
        return 128 + received[0][1]
    if status > 0:
        end = f"exit code {status}"
    else:
        end = signal.Signals(-status).name
    screen.facts.setdefault("error", f"the run's process exited with {end}")
    # Before the run is under way, 2 is a wrong setting. Later it is a failure like any other.
    return 2 if status == 2 and "under_way" not in screen.facts else 1


def _watch(pid: int, pipe: int, scratch: Path, screen: Screen, received: Sequence[tuple[float, int]]) -> int:
    """Show the run until its process ends, or its time is up after a signal. The exit code, -N after signal N."""
    unread, is_stopping = b"", False
    while True:
        # Asked before the pipe is read: what a process sent before it ended is then read in this round.
        ended, status = os.waitpid(pid, os.WNOHANG)
        with suppress(BlockingIOError):  # nothing was sent
            unread += os.read(pipe, _READ)
        # What follows the last line feed is a report that has not come whole yet.
        *lines, unread = unread.split(b"\n")
        for line in lines:
            with suppress(ValueError):  # too long to be sent in one write
                screen.take(json.loads(line))
        screen.tick()
        if ended:
            return os.waitstatus_to_exitcode(status)
        if received and not is_stopping:
            is_stopping = True
            name = signal.Signals(received[0][1]).name
            with suppress(OSError):
                (scratch / STOPPED_BY).write_text(name)
            os.kill(pid, signal.SIGTERM)
            screen.line(f"{name}: stopping; a second signal stops the run within 10 s, a third immediately")
        # Each signal sets a deadline of its own, and the earliest one counts.
        deadlines = [moment + patience for (moment, _), patience in zip(received, _PATIENCE, strict=False)]
        if deadlines and time.monotonic() > min(deadlines):
            return -signal.SIGKILL
        time.sleep(_POLL)


def end_descendants(patience: float) -> None:
    """Wait for all processes below this one, and kill those that are left after `patience` seconds."""
    deadline = time.monotonic() + patience
    while (children := psutil.Process().children(recursive=True)) and time.monotonic() < deadline + _UNKILLABLE:
        if time.monotonic() > deadline:
            for child in children:
                with suppress(psutil.Error):  # it has ended meanwhile
                    child.kill()
        # Orphans of the run are children of this process now: unless they are waited for, they stay as zombies.
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.02)


def _work(work: Callable[[], object], scratch: Path, supervisor: int, verbose: bool) -> NoReturn:
    """Do the work in this process, which is a fork, and end the process."""
    code = 1
    try:
        os.setsid()  # Ctrl-C reaches the terminal's session only, so Ray's processes never see it
        # The fork has inherited the supervisor's handlers, which would only note a signal.
        for signum in _SIGNALS:
            signal.signal(signum, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # with which Ray cancels a task
        die_with_parent(signal.SIGTERM)
        os.environ.update({SCRATCH: str(scratch), **_ENVIRONMENT})
        if verbose:
            os.environ[VERBOSE] = "1"
        else:
            redirect_output(Path(os.devnull))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the terminal's input is the supervisor's
        reports = Reports.of_this_process()
        reports.send_warnings()
        work()
        code = 0
    except RGEnvError as error:
        reports.send(error=str(error))
        code = error.exit_code
    except Exception as error:
        traceback.print_exc()
        last = (str(error).strip().splitlines() or [""])[-1]  # Ray's begin with the traceback of another process
        reports.send(error=one_line(last if "\n" in str(error) else f"{type(error).__name__}: {last}", 500))
    finally:
        # `os._exit` flushes nothing.
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        if os.getppid() != supervisor:  # it cannot remove the folder
            shutil.rmtree(scratch, ignore_errors=True)
        os._exit(code)
