"""Tries on this machine whether the mechanisms of the sandbox hold: `rg-env doctor`, and the tests.

Invariant: a mechanism is reported as active only if a process in the sandbox has tried a forbidden action and failed.
Each trial is harmless where it succeeds. Not covered: everything else that docs/security.md says; the tests try that.
"""

from __future__ import annotations

import ctypes
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
from pathlib import Path

from rg_env.errors import ScorerPoolError
from rg_env.scoring.sandbox.sandbox import CAPABILITY_VERSION, LANDLOCK, LIMITS, PRIVILEGES, SECCOMP, Sandbox

_SECONDS = 60.0
MEASURES = {
    LIMITS: "limits on memory, CPU time, open files, file size",
    PRIVILEGES: "no privileges, no way to gain any",
    LANDLOCK: "no file written, and none read except Python's packages and system libraries",
    SECCOMP: "no network, no new processes or threads, no signals, locks or memory shared with other processes",
}
"""Mechanism → what a worker cannot do, or not without limit."""


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
    with tempfile.NamedTemporaryFile() as victim:
        try:
            done = subprocess.run(
                [*command, victim.name], capture_output=True, text=True, timeout=_SECONDS, check=True, env=environment
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ScorerPoolError(f"the process that tries the sandbox failed: {error}") from error
    return [Measure(**measure) for measure in json.loads(done.stdout)]


def try_measures(victim: Path) -> Iterator[Measure]:
    """Enter the sandbox for good, with this process, and try every mechanism.

    Args:
        victim: an empty file that a process outside the sandbox could read and change.
    """
    sandbox = Sandbox()
    sandbox.enter(memory_bytes=1 << 30, cpu_seconds=5)
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    attempts: dict[str, tuple[Callable[[], object], ...]] = {
        LIMITS: (lambda: resource.setrlimit(resource.RLIMIT_AS, unlimited),),
        PRIVILEGES: (_need_privileges,),
        LANDLOCK: (victim.read_bytes, lambda: victim.write_bytes(b"")),
        SECCOMP: (socket.socket, socket.socketpair, lambda: os.kill(os.getppid(), 0)),
    }
    for mechanism, name in MEASURES.items():
        why = sandbox.missing.get(mechanism, "")
        if not why and not all(map(_refused, attempts[mechanism])):
            why = "the system accepted the measure, but does not enforce it"
        yield Measure(name, not why, why and f"{mechanism}: {why}")


def _refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except (OSError, ValueError):
        return True
    return False


def _need_privileges() -> None:
    """Raises OSError without any capability."""
    sets = ctypes.create_string_buffer(24)  # twice effective, permitted, inheritable, of 32 bits each
    header = struct.pack("=Ii", CAPABILITY_VERSION, 0)
    if ctypes.CDLL(None).capget(header, sets) == 0 and not any(sets.raw):
        raise PermissionError


if __name__ == "__main__":
    sys.stdout.write(json.dumps([asdict(measure) for measure in try_measures(Path(sys.argv[1]))]))
