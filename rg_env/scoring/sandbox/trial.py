"""Tries on this machine what docs/security.md says that a scorer process cannot do: `rg-env doctor`, and the tests.

Invariant: a measure is reported as active only if a process in the sandbox has tried the forbidden action and failed.
Each trial is harmless where it succeeds.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

from rg_env.errors import ScorerPoolError
from rg_env.scoring.sandbox.sandbox import CAPABILITY_VERSION, LANDLOCK, LIMITS, PRIVILEGES, SECCOMP, Sandbox

_SECONDS = 60.0


class MeasureName(StrEnum):
    """One thing that a worker cannot do, or not without limit."""

    LIMITS = "limits on memory, CPU time, open files, file size"
    NO_PRIVILEGES = "no privileges, no way to gain any"
    NO_WRITING = "no file written, created, renamed or removed"
    NO_READING = "no file read except Python's packages and system libraries"
    NO_NETWORK = "no network, no new sockets"
    NO_PROCESSES = "no new processes, no threads, no other program"
    NO_SIGNALS = "no signals to other processes"
    NO_SHARING = "no memory, locks or notifications shared with other processes"


@dataclass(frozen=True, slots=True)
class Measure:
    """Whether a measure works on this machine, and if not, one line saying why."""

    name: str
    active: bool
    why_not: str = ""


def sandbox_report() -> list[Measure]:
    """What scorer processes cannot do on this machine, as tried by a process in the sandbox. Takes a second.

    Raises:
        ScorerPoolError: the process does not run.
    """
    command = [sys.executable, "-P", "-m", "rg_env.scoring.sandbox.trial"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [*command, folder], capture_output=True, text=True, timeout=_SECONDS, check=True, env=environment
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ScorerPoolError(f"the process that tries the sandbox failed: {error}") from error
    return [Measure(**measure) for measure in json.loads(done.stdout)]


def try_measures(victim: Path) -> Iterator[Measure]:
    """Enter the sandbox for good, with this process, and try every measure.

    Args:
        victim: an empty file that a process outside the sandbox could change.
    """
    sandbox = Sandbox()
    sandbox.enter(memory_bytes=1 << 30, cpu_seconds=5)
    for name, (relies_on, holds) in _TRIALS.items():
        missing = [f"{what}: {sandbox.missing[what]}" for what in relies_on if what in sandbox.missing]
        if holds(victim) and len(missing) < len(relies_on):
            yield Measure(name.value, True)
        else:
            why = "; ".join(missing) or "the system accepted the measure, but does not enforce it"
            yield Measure(name.value, False, why)


def _refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except (OSError, ValueError):
        return True
    return False


def _limits_hold(_: Path) -> bool:
    def lift(kind: int) -> None:
        resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    kinds = (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)
    return all(_refused(partial(lift, kind)) for kind in kinds)


def _privileges_are_gone(_: Path) -> bool:
    sets = ctypes.create_string_buffer(24)  # twice effective, permitted, inheritable, of 32 bits each
    header = struct.pack("=Ii", CAPABILITY_VERSION, 0)
    return sys.platform == "linux" and ctypes.CDLL(None).capget(header, sets) == 0 and not any(sets.raw)


def _nothing_is_written(victim: Path) -> bool:
    attempts = (
        lambda: victim.open("w").close(),
        lambda: victim.with_name("new").touch(),
        lambda: victim.rename(victim.with_name("moved")),
        victim.unlink,
    )
    return all(_refused(attempt) for attempt in attempts)


def _nothing_else_is_read(victim: Path) -> bool:
    return _refused(victim.read_bytes) and _refused(lambda: list(victim.parent.iterdir()))


def _no_socket_is_made(_: Path) -> bool:
    families = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
    return all(_refused(partial(socket.socket, family, socket.SOCK_DGRAM)) for family in families)


def _no_process_is_made(_: Path) -> bool:
    try:
        pid = os.fork()
    except OSError:
        return True
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return False


def _nothing_is_shared(_: Path) -> bool:
    with Path(os.devnull).open("rb") as file:
        if not (_refused(socket.socketpair) and _refused(partial(fcntl.flock, file, fcntl.LOCK_SH))):
            return False
    libc = ctypes.CDLL(None, use_errno=True)
    calls = (libc.shmat, libc.shmdt, libc.semop, libc.msgsnd, libc.inotify_init1)
    return all(call(-1, None, 0) == -1 and ctypes.get_errno() == errno.EPERM for call in calls)


def _no_signal_is_sent(_: Path) -> bool:
    return _refused(lambda: os.kill(os.getppid(), 0))


_TRIALS: dict[MeasureName, tuple[tuple[str, ...], Callable[[Path], bool]]] = {
    MeasureName.LIMITS: ((LIMITS,), _limits_hold),
    MeasureName.NO_PRIVILEGES: ((PRIVILEGES,), _privileges_are_gone),
    MeasureName.NO_WRITING: ((LANDLOCK,), _nothing_is_written),
    MeasureName.NO_READING: ((LANDLOCK,), _nothing_else_is_read),
    MeasureName.NO_NETWORK: ((SECCOMP,), _no_socket_is_made),
    MeasureName.NO_PROCESSES: ((SECCOMP,), _no_process_is_made),
    MeasureName.NO_SIGNALS: ((LANDLOCK, SECCOMP), _no_signal_is_sent),
    MeasureName.NO_SHARING: ((SECCOMP,), _nothing_is_shared),
}
"""Measure → mechanisms, any one of which is enough, and how it is tried."""


if __name__ == "__main__":
    target = Path(sys.argv[1], "victim")
    target.touch()
    sys.stdout.write(json.dumps([asdict(measure) for measure in try_measures(target)]))
