"""The restrictions that a worker enters before it sees model output.

Invariants:
- Scoring works on every system: what the system does not offer is left out, and `enter` returns it.
- It is permanent: a process cannot lift its restrictions, not even as root.

Each mechanism alone has gaps; `docs/security.md` describes what they cover together, and `trial` tries it. Limits work
everywhere. Landlock and seccomp need Linux but no privileges. Containers usually allow both and forbid user namespaces,
which are therefore not used.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rg_env.scoring.sandbox import landlock, seccomp

LIMITS, PRIVILEGES, LANDLOCK, SECCOMP = "limits", "privileges", "Landlock", "seccomp"
_PR_SET_NO_NEW_PRIVS = 38
CAPABILITY_VERSION = 0x20080522
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


class Sandbox:
    """Prepared once, in a process that has imported all it needs, and entered by its forks.

    Attributes:
        missing: the mechanisms that this system does not offer, each with the reason.
    """

    def __init__(self) -> None:
        self.missing: dict[str, str] = {}
        self._ruleset: landlock.Ruleset | None = None
        self._filter: bytes | None = None
        with self._keeping_reason(LANDLOCK):
            self._ruleset = landlock.Ruleset(readable_paths())
        with self._keeping_reason(SECCOMP):
            self._filter = seccomp.build()

    def enter(self, memory_bytes: int, cpu_seconds: int) -> dict[str, str]:
        """Put this process under every measure that the system offers; return the others, with reasons. Never raises.

        Args:
            memory_bytes: how far the process may still grow, in bytes of address space.
            cpu_seconds: CPU time that one answer may take; the process may take ten minutes more in its whole life.
        """
        with self._keeping_reason(LIMITS):
            _limit(memory_bytes, cpu_seconds)
        with self._keeping_reason(PRIVILEGES):
            _drop_privileges()
        with self._keeping_reason(LANDLOCK):
            if self._ruleset is not None:
                self._ruleset.enter()
        with self._keeping_reason(SECCOMP):  # last, because it refuses what the others need
            if self._filter is not None:
                seccomp.install(self._filter)
        return self.missing

    @contextmanager
    def _keeping_reason(self, what: str) -> Iterator[None]:
        """Suppress every error but keep the reason: scoring must work without this measure."""
        try:
            yield
        except Exception as error:
            self.missing[what] = str(getattr(error, "strerror", None) or error)


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
    if libc.capset(struct.pack("=Ii", CAPABILITY_VERSION, 0), bytes(24)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
