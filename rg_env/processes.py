"""Processes: how they end with their parent, where they print and keep temporary files, how many cores they have."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


SCRATCH = "RG_ENV_SCRATCH"
"""Environment variable: the folder that the supervisor of this process removes at the end."""
_LONGEST_TEMP = 30
"""Maximum length of the path of temporary folders: Ray's socket paths are about 77 characters longer, and the limit is
107 bytes."""


def die_with_parent(signum: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when the thread that started it ends. Only Linux can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)


def adopt_orphans() -> None:
    """Have the kernel make this process the parent of descendants whose parent ended. Only Linux can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def redirect_output(path: Path) -> None:
    """Append to a file what this process and its libraries print."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for descriptor in (1, 2):
        os.dup2(file, descriptor)
    os.close(file)


def make_scratch() -> Path:
    """A temporary folder with a path that is short enough for Ray's sockets."""
    usual = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="rg", dir=usual if len(usual) <= _LONGEST_TEMP else "/tmp"))


def ray_folder() -> Path:
    """A new folder for Ray, which the supervisor of this process removes if it has one."""
    scratch = os.environ.get(SCRATCH)
    if scratch is None:
        return make_scratch()
    folder = Path(scratch, "r")
    folder.mkdir()
    return folder


def usable_cores() -> int:
    """Number of cores that this process may use, by its affinity and its control groups' CPU quotas; at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([cores, *(int(quota) for quota in _quotas(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")))]))


def _quotas(groups: Path, mount: Path) -> Iterator[float]:
    """The limits of the control groups of a process and of those above them, in cores. Versions 1 and 2."""
    with suppress(OSError):
        for line in groups.read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            folder = mount / ("cpu" if controllers else "") / group.strip("/")
            for place in (folder, *folder.parents):
                with suppress(OSError, ValueError):
                    if controllers:
                        used, period = ((place / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
                    else:
                        used, period = (place / "cpu.max").read_text().split()
                    if float(used) > 0:  # a ValueError is `max`
                        yield float(used) / float(period)
