"""The restrictions that a worker enters before it sees model output: limits, Landlock and seccomp.

Invariants:
- Scoring works on every system: what the system does not offer is left out, and `Sandbox.enter` returns it.
- It is permanent: a process cannot lift its restrictions, not even as root.

Each mechanism alone has gaps; `docs/security.md` describes what they cover together, and `sandbox_report` tries it.
Limits work everywhere. Landlock (sources: the kernel's Documentation/userspace-api/landlock.rst) and seccomp need Linux
but no privileges. Containers usually allow both and forbid user namespaces, which are therefore not used.

Not covered by Landlock: the result of `stat`; changes of mode, owner and times; sockets other than TCP's; before Linux
6.2, truncating. seccomp covers all but the first.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import socket
import stat
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from . import child_seccomp as seccomp
from .failures import ScorerPoolError
from .machine import libc

LIMITS, PRIVILEGES, LANDLOCK, SECCOMP = "limits", "privileges", "Landlock", "seccomp"
MEASURES = {
    LIMITS: "limits on memory, CPU time, open files, file size",
    PRIVILEGES: "no privileges, no way to gain any",
    LANDLOCK: "Landlock: no file read except Python's packages and system libraries, none written",
    SECCOMP: "seccomp: no system call except those that scoring needs",
}
"""Mechanism → what a worker cannot do, or not without limit."""
_CPU_SECONDS = 600
"""For a worker's whole life, in addition to one answer's time. Stops a spinning worker even if the trainer hangs."""
_OPEN_FILES = 64
_SYSTEM_FILES = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo"),
    *("/etc/ld.so.cache", "/etc/localtime", "/dev/null", "/dev/urandom"),
)
"""What a late import may need in addition to Python's own folders."""


class Sandbox:
    """Prepared once, in a process that has imported all it needs, and entered by its forks.

    Attributes:
        missing: the mechanisms that this system does not offer, each with the reason.
    """

    def __init__(self) -> None:
        self.missing: dict[str, str] = {}
        self._ruleset: int | None = None
        self._filter: bytes | None = None
        # Opened here, because Landlock refuses it to a prepared server's forks.
        self._statm: int | None = None
        with suppress(OSError):  # there is no /proc outside Linux
            self._statm = os.open("/proc/self/statm", os.O_RDONLY)
        with self._keeping_reason(LANDLOCK):
            self._ruleset = make_ruleset(readable_paths())
        with self._keeping_reason(SECCOMP):
            self._filter = seccomp.build()

    def enter(self, memory_bytes: int, cpu_seconds: int) -> dict[str, str]:
        """Put this process under every measure that the system offers; return the others, with reasons. Never raises.

        Args:
            memory_bytes: how far the process may still grow, in bytes of address space.
            cpu_seconds: CPU time that one answer may take; the process may take ten minutes more in its whole life.
        """
        limits = [
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_FSIZE, 0),
            (resource.RLIMIT_NOFILE, _OPEN_FILES),
            (resource.RLIMIT_NPROC, 0),  # does not apply to root; seccomp does
            (resource.RLIMIT_CPU, _CPU_SECONDS + cpu_seconds),
        ]
        with self._keeping_reason(LIMITS):
            _limit([*self._memory_limit(memory_bytes), *limits])
        with self._keeping_reason(PRIVILEGES):
            _drop_privileges()
        with self._keeping_reason(LANDLOCK):
            if self._ruleset is not None:
                _landlock(_RESTRICT, self._ruleset, 0)
                os.close(self._ruleset)
        with self._keeping_reason(SECCOMP):  # last, because it refuses what the others need
            if self._filter is not None:
                seccomp.install(self._filter)
        return self.missing

    def enter_before_forks(self, memory_bytes: int) -> None:
        """Enter what a process can enter that still forks: limited memory, no privileges, Landlock. Never raises.

        Its forks enter all measures by `enter`, which also says what is missing. They may grow as far as it may.
        """
        # Twice, because a fork cannot raise the limit that it inherits, and may grow beyond what preparation took.
        with suppress(Exception):
            _limit(self._memory_limit(2 * memory_bytes))
        with suppress(Exception):
            _drop_privileges()
            if self._ruleset is not None:
                _landlock(_RESTRICT, self._ruleset, 0)

    def _memory_limit(self, bytes_more: int) -> list[tuple[int, int]]:
        """Return the limit on address space. `statm` stays that of the process that opened it, of which this is a
        fork."""
        if self._statm is None:  # RLIMIT_AS has no effect outside Linux either
            return []
        pages = int(os.pread(self._statm, 100, 0).split()[0])
        return [(resource.RLIMIT_AS, pages * resource.getpagesize() + bytes_more)]

    @contextmanager
    def _keeping_reason(self, what: str) -> Iterator[None]:
        """Suppress every error but keep the reason: scoring must work without this measure."""
        try:
            yield
        except Exception as error:
            self.missing[what] = str(getattr(error, "strerror", None) or error)


def _has_packages(folder: Path) -> bool:
    """Return whether packages are installed in a folder: by its name, or as `pip install --target` leaves it."""
    if folder.name in ("site-packages", "dist-packages"):
        return True
    with suppress(OSError):
        return any(folder.glob("*.dist-info"))
    return False


def readable_paths() -> list[str]:
    """Return what a scorer may read: Python's folders, those of the packages imported so far, the system's libraries.

    Not the script's folder, nor the current one, although both may be in `sys.path`.
    """
    paths = {sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()}
    paths |= {path for path in sys.path if _has_packages(Path(path))}
    for module in list(sys.modules.values()):
        with suppress(Exception):
            paths |= {str(path) for path in vars(module).get("__path__", ())}  # a lazy module may log on getattr
    paths -= {"", "/", str(Path.home())}
    return [*sorted(path for path in paths if path.startswith("/")), *_SYSTEM_FILES]


# -- limits and privileges


def _limit(limits: list[tuple[int, int]]) -> None:
    for kind, value in limits:
        # The hard limit, too, so that it cannot be raised again; where one is set already, it may be the lower one.
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION = 0x20080522


def _drop_privileges() -> None:
    """Drop all capabilities, so that root cannot lift its limits, and every way to gain new ones."""
    if sys.platform != "linux":
        raise OSError("needs Linux")
    zero = ctypes.c_ulong(0)
    _check(libc().prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero))
    _check(libc().capset(struct.pack("=Ii", _CAPABILITY_VERSION, 0), bytes(24)))


def _check(result: int) -> int:
    """Raise OSError for the result of a failed call to libc."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


# -- Landlock

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # the same numbers on every architecture
_CREATE_RULESET_VERSION, _RULE_PATH_BENEATH = 1, 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_FILES_OF_ABI = {1: 13, 2: 14, 3: 15, 5: 16}
"""ABI → number of file rights, bits from 0 up: ABI 2 added REFER, 3 TRUNCATE, 5 IOCTL_DEV."""
_TCP, _SCOPES = 0b11, 0b11
"""Bind and connect, since ABI 4; abstract sockets of, and signals to, processes outside, since ABI 6."""


def landlock_abi() -> int:
    """Return the version of Landlock in this kernel, at least 1. Raises OSError if there is no Landlock."""
    if sys.platform != "linux":
        raise OSError("needs Linux")
    return _landlock(_CREATE, None, 0, _CREATE_RULESET_VERSION)


def make_ruleset(readable: list[str]) -> int:
    """Return a descriptor of rules by which nothing but the given files, and what is below the given folders, can be
    read.

    Nothing can be written, created, renamed, removed or executed, as far as this kernel's Landlock has the right.
    Missing paths are skipped. Raises OSError if there is no Landlock.
    """
    abi = landlock_abi()
    # A right that the kernel does not know is an error, so that older kernels get fewer bits.
    files = (1 << max(count for known, count in _FILES_OF_ABI.items() if known <= abi)) - 1
    # The structure grew with the versions, and an older kernel refuses a longer one.
    attributes = struct.pack("=Q", files)
    if abi >= 4:
        attributes += struct.pack("=Q", _TCP)
    if abi >= 6:
        attributes += struct.pack("=Q", _SCOPES)
    ruleset = _landlock(_CREATE, attributes, len(attributes), 0)
    for path in readable:
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                rights = _READ_FILE
                if stat.S_ISDIR(os.fstat(parent).st_mode):
                    rights |= _READ_DIR
                _landlock(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, struct.pack("=Qi", rights, parent), 0)
            finally:
                os.close(parent)
    return ruleset


def _landlock(number: int, *arguments: int | bytes | None) -> int:
    return _check(libc().syscall(ctypes.c_long(number), *map(_as_register, arguments)))


def _as_register(value: int | bytes | None) -> Any:
    """ctypes passes a plain number as 32 bits."""
    return ctypes.c_long(value) if isinstance(value, int) else value


# -- the trial


def sandbox_report() -> dict[str, str]:
    """Return the measures of the sandbox, each with the reason why it does not hold on this machine, "" if it does.

    It holds if a process in the sandbox tried something forbidden and failed. Takes a second.

    Raises:
        ScorerPoolError: that process does not run.
    """
    command = [sys.executable, "-P", "-m", f"{__package__}.child_sandbox"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    try:
        done = subprocess.run(command, capture_output=True, timeout=60, check=True, env=environment)
    except (OSError, subprocess.SubprocessError) as error:
        raise ScorerPoolError(f"the process that tries the sandbox failed: {error}") from error
    return dict(json.loads(done.stdout))


def try_measures() -> dict[str, str]:
    """Enter the sandbox for good, with this process, and try every mechanism; harmless where it succeeds."""
    missing = Sandbox().enter(memory_bytes=1 << 30, cpu_seconds=5)
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)

    def attempt(mechanism: str, forbidden: Callable[..., object], *arguments: object) -> None:
        if mechanism in missing:
            return
        with suppress(OSError, ValueError, MemoryError):
            forbidden(*arguments)
            missing[mechanism] = "the system accepted the measure, but does not enforce it"

    attempt(LIMITS, bytearray, 2 << 30)
    attempt(PRIVILEGES, resource.setrlimit, resource.RLIMIT_CORE, unlimited)
    attempt(LANDLOCK, os.listdir, "/")
    attempt(SECCOMP, socket.socket)
    attempt(SECCOMP, os.kill, os.getppid(), 0)
    attempt(SECCOMP, os.open, os.devnull, os.O_WRONLY)
    return {name: missing.get(mechanism, "") for mechanism, name in MEASURES.items()}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(try_measures()))
