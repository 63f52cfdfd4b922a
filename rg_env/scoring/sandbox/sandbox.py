"""The restrictions that a worker enters before it sees model output.

Invariants:
- Scoring works on every system: a measure that the system does not offer is skipped and reported.
- A measure is reported as active only if a process under it has tried the forbidden action and failed.
- Measures are permanent: a process under a measure cannot lift it, not even as root.

Each measure alone has gaps; `docs/security.md` describes for users what they cover together. Limits work everywhere.
Landlock and seccomp need Linux but no privileges. Containers usually allow both and forbid user namespaces, which are
therefore not used.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

from rg_env.scoring.sandbox import landlock, seccomp

_LIMITS, _PRIVILEGES, _LANDLOCK, _SECCOMP = "limits", "privileges", "Landlock", "seccomp"
_PROBE_SECONDS = 10.0
_PROBE_TRIES = 3
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION = 0x20080522
_CPU_SECONDS = 600
"""For a worker's whole life, in addition to one answer's time. Stops a spinning worker even if the trainer hangs."""
_OPEN_FILES = 64
_SYSTEM_FILES = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/share/zoneinfo",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/dev/null",
    "/dev/urandom",
)
"""What a late import may need in addition to Python's own folders."""


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
    """Whether a measure works on this machine (None: unknown), and if not, one line saying why."""

    name: str
    active: bool | None
    why_not: str = ""


class Sandbox:
    """Prepared once, in a process that has imported all it needs, and entered by its forks."""

    def __init__(self) -> None:
        self._failures: dict[str, str] = {}
        self._ruleset: landlock.Ruleset | None = None
        self._filter: bytes | None = None
        with self._keeping_reason(_LANDLOCK):
            self._ruleset = landlock.Ruleset(readable_paths())
        with self._keeping_reason(_SECCOMP):
            self._filter = seccomp.build()

    def enter(self, memory_bytes: int, cpu_seconds: int) -> None:
        """Put this process under every measure that the system offers. Never raises.

        Args:
            memory_bytes: how far the process may still grow, in bytes of address space.
            cpu_seconds: CPU time that one answer may take; the process may take ten minutes more in its whole life.
        """
        with self._keeping_reason(_LIMITS):
            _limit(memory_bytes, cpu_seconds)
        with self._keeping_reason(_PRIVILEGES):
            _drop_privileges()
        with self._keeping_reason(_LANDLOCK):
            if self._ruleset is not None:
                self._ruleset.enter()
        with self._keeping_reason(_SECCOMP):  # last, because it refuses what the others need
            if self._filter is not None:
                seccomp.install(self._filter)

    def probe(self, memory_bytes: int, cpu_seconds: int) -> list[Measure]:
        """Enter in a fork, try what should now be forbidden, and report. Never raises.

        If the fork is killed or late three times, the state of every measure is unknown.
        """
        for _ in range(_PROBE_TRIES):
            try:
                return self._probe(memory_bytes, cpu_seconds)
            except (OSError, ValueError) as error:
                why = str(error)
        return [Measure(name.value, None, f"state unknown: {why}") for name in MeasureName]

    def _probe(self, memory_bytes: int, cpu_seconds: int) -> list[Measure]:
        reader, writer = os.pipe()
        with tempfile.TemporaryDirectory() as folder:
            victim = Path(folder, "victim")
            victim.touch()
            if (pid := os.fork()) == 0:
                try:
                    self.enter(memory_bytes, cpu_seconds)
                    os.write(writer, json.dumps([asdict(measure) for measure in self._try_all(victim)]).encode())
                finally:
                    os._exit(0)
            os.close(writer)
            try:
                report = b""
                while select.select([reader], [], [], _PROBE_SECONDS)[0] and (chunk := os.read(reader, 1 << 16)):
                    report += chunk
            finally:
                os.close(reader)
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        if not report:
            raise OSError("the process that tries the measures ended early or was late")
        return [Measure(**measure) for measure in json.loads(report)]

    def _try_all(self, victim: Path) -> Iterator[Measure]:
        for name, (relies_on, holds) in _TRIALS.items():
            missing = [f"{what}: {self._failures[what]}" for what in relies_on if what in self._failures]
            if holds(victim) and len(missing) < len(relies_on):
                yield Measure(name.value, True)
            else:
                yield Measure(
                    name.value, False, "; ".join(missing) or "the system accepted the measure, but does not enforce it"
                )

    @contextmanager
    def _keeping_reason(self, what: str) -> Iterator[None]:
        """Suppress every error but keep the reason: scoring must work without this measure."""
        try:
            yield
        except Exception as error:
            self._failures[what] = str(getattr(error, "strerror", None) or error)


def readable_paths() -> list[str]:
    """What a scorer may read: Python's folders, those of the packages imported so far, the system's libraries.

    Not the script's folder, nor the current one, although both may be in `sys.path`.
    """
    paths = {sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()}
    paths |= {path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")}
    for module in list(sys.modules.values()):
        with suppress(Exception):
            paths |= {str(path) for path in vars(module).get("__path__", ())}  # a lazy module may log on getattr
    paths -= {"", "/", str(Path.home())}
    return [*sorted(path for path in paths if path.startswith("/")), *_SYSTEM_FILES]


def _limit(memory_bytes: int, cpu_seconds: int) -> None:
    wanted = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_NPROC, 0),  # does not apply to root; seccomp does
        (resource.RLIMIT_CPU, _CPU_SECONDS + cpu_seconds),
    ]
    with suppress(OSError):  # there is no /proc outside Linux, where RLIMIT_AS has no effect either
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        wanted.append((resource.RLIMIT_AS, pages * resource.getpagesize() + memory_bytes))
    for kind, value in wanted:
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def _drop_privileges() -> None:
    """Drop all capabilities, so that root cannot lift its limits, and every way to gain new ones."""
    if sys.platform != "linux":
        raise OSError("needs Linux")
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if libc.capset(struct.pack("=Ii", _CAPABILITY_VERSION, 0), bytes(24)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


# -- trials: each tries something forbidden but harmless, and returns whether the system refused it


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
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
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
    MeasureName.LIMITS: ((_LIMITS,), _limits_hold),
    MeasureName.NO_PRIVILEGES: ((_PRIVILEGES,), _privileges_are_gone),
    MeasureName.NO_WRITING: ((_LANDLOCK, _SECCOMP), _nothing_is_written),
    MeasureName.NO_READING: ((_LANDLOCK,), _nothing_else_is_read),
    MeasureName.NO_NETWORK: ((_SECCOMP,), _no_socket_is_made),
    MeasureName.NO_PROCESSES: ((_SECCOMP,), _no_process_is_made),
    MeasureName.NO_SIGNALS: ((_LANDLOCK, _SECCOMP), _no_signal_is_sent),
    MeasureName.NO_SHARING: ((_SECCOMP,), _nothing_is_shared),
}
"""Measure → mechanisms, any one of which is enough, and how it is tried."""
