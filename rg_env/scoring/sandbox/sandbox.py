"""What a worker gives up before it sees a text that a model wrote.

Invariants:
- Nothing here can keep scoring from working: what the system does not offer is left out, and said.
- A measure is reported active only where a process under it has tried the forbidden thing and failed.
- Giving up is for good: no measure can be taken back by the process that is under it, root or not.

Each measure alone has gaps; `docs/security.md` says in users' words what all together cover. Limits work everywhere.
Landlock and seccomp are Linux's and need no privileges; containers usually leave both on, and they were preferred to
user namespaces because containers usually forbid those.
"""

from __future__ import annotations

import ctypes
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
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION = 0x20080522
_CPU_SECONDS = 600
"""Of a worker's whole life, on top of one answer's time: stops what spins when the trainer is frozen and cannot."""
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
"""What a late import may need besides Python's own folders."""


class MeasureName(StrEnum):
    """One thing that a worker cannot do, or not for ever."""

    LIMITS = "limits on memory, CPU time, open files, file size"
    NO_PRIVILEGES = "no privileges, no way to new ones"
    NO_WRITING = "no file written, made, renamed or removed"
    NO_READING = "no file read but Python's packages and system libraries"
    NO_NETWORK = "no network, no new sockets"
    NO_PROCESSES = "no new processes, no other program"
    NO_SIGNALS = "no signals to other processes"


@dataclass(frozen=True, slots=True)
class Measure:
    """Whether a measure holds on this machine, and in one line why not."""

    name: str
    active: bool
    why_not: str = ""


class Sandbox:
    """Prepared once, in a process that has imported all it needs; entered by its forks."""

    def __init__(self) -> None:
        self._failures: dict[str, str] = {}
        self._ruleset: landlock.Ruleset | None = None
        self._filter: bytes | None = None
        with self._noting(_LANDLOCK):
            self._ruleset = landlock.Ruleset(readable_paths())
        with self._noting(_SECCOMP):
            self._filter = seccomp.build()

    def enter(self, memory_bytes: int, cpu_seconds: int) -> None:
        """Put this process under every measure that the system offers. Never raises.

        Args:
            memory_bytes: how far it may still grow, in bytes of address space.
            cpu_seconds: what one answer may take; the process may take ten minutes more in its whole life.
        """
        with self._noting(_LIMITS):
            _limit(memory_bytes, cpu_seconds)
        with self._noting(_PRIVILEGES):
            _drop_privileges()
        with self._noting(_LANDLOCK):
            if self._ruleset is not None:
                self._ruleset.enter()
        with self._noting(_SECCOMP):  # last: it refuses what the others need
            if self._filter is not None:
                seccomp.install(self._filter)

    def probe(self, memory_bytes: int, cpu_seconds: int) -> list[Measure]:
        """Enter in a fork, try what should now be forbidden, and tell. Never raises."""
        try:
            return self._probe(memory_bytes, cpu_seconds)
        except (OSError, ValueError) as error:
            return [Measure(name.value, False, f"could not be tried: {error}") for name in MeasureName]

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
                told = b""
                while select.select([reader], [], [], _PROBE_SECONDS)[0] and (chunk := os.read(reader, 1 << 16)):
                    told += chunk
            finally:
                os.close(reader)
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        return [Measure(**measure) for measure in json.loads(told)]

    def _try_all(self, victim: Path) -> Iterator[Measure]:
        for name, (relies_on, holds) in _TRIALS.items():
            missing = [f"{what}: {self._failures[what]}" for what in relies_on if what in self._failures]
            if holds(victim) and len(missing) < len(relies_on):
                yield Measure(name.value, True)
            else:
                yield Measure(
                    name.value, False, "; ".join(missing) or "the system took the measure, but does not hold it"
                )

    @contextmanager
    def _noting(self, what: str) -> Iterator[None]:
        """Swallow what goes wrong, keeping the reason: a measure that cannot be had must not cost a score."""
        try:
            yield
        except Exception as error:
            self._failures[what] = str(getattr(error, "strerror", None) or error)


def readable_paths() -> list[str]:
    """What a scorer may read: Python's folders, those of the packages imported so far, the system's libraries.

    Not the folder of the script, nor the current one, though both may stand in `sys.path`.
    """
    paths = {sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()}
    paths |= {path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")}
    for module in list(sys.modules.values()):
        with suppress(Exception):
            paths |= {str(path) for path in getattr(module, "__path__", ())}
    paths -= {"", "/", str(Path.home())}
    return [*sorted(path for path in paths if path.startswith("/")), *_SYSTEM_FILES]


def _limit(memory_bytes: int, cpu_seconds: int) -> None:
    wanted = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_NPROC, 0),  # does not bind root, whom seccomp binds
        (resource.RLIMIT_CPU, _CPU_SECONDS + cpu_seconds),
    ]
    with suppress(OSError):  # no /proc outside Linux, where RLIMIT_AS is of no use either
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        wanted.append((resource.RLIMIT_AS, pages * resource.getpagesize() + memory_bytes))
    for kind, value in wanted:
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def _drop_privileges() -> None:
    """Give up all capabilities, so that root cannot lift its limits, and any way to get new ones."""
    if sys.platform != "linux":
        raise OSError("needs Linux")
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if libc.capset(struct.pack("=Ii", _CAPABILITY_VERSION, 0), bytes(24)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


# -- trials: each tries something forbidden that would do no harm, and returns whether the system refused


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
}
"""How a measure is tried, and what it rests on: any one of those is enough."""
