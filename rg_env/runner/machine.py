"""The machine: processes that end with their parent, the number of cores, and the number of workers for them."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

_PR_SET_PDEATHSIG = 1


@cache
def libc() -> ctypes.CDLL:
    """Return the C library. Loaded once and before any fork: it would take each fork a tenth of its time."""
    return ctypes.CDLL(None, use_errno=True)


def die_with_parent(signum: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when the thread that started it ends. Only Linux can."""
    if sys.platform == "linux":
        libc().prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)


def usable_cores() -> int:
    """Number of cores that this process may use, by its affinity and its control groups' CPU quotas; at least 1."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    for quota in _quotas(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")):
        cores = min(cores, int(quota))
    return max(1, cores)


def workers_for(setting: int | str, cores: int) -> int:
    """Return the number of workers that `workers` means.

    `auto` is half of the cores, because training, engines and the process that asks need the others, within two bounds:
    two, so that a slow answer does not stop all others; and 16, beyond which workers idle. Workers are started when
    they are needed, so a large number costs nothing by itself.

    >>> [workers_for("auto", cores) for cores in (1, 2, 8, 16, 200)], workers_for(3, 8)
    ([2, 2, 4, 8, 16], 3)
    """
    if isinstance(setting, int):
        return setting
    return min(16, max(2, cores // 2))


def _quotas(groups: Path, mount: Path) -> Iterator[float]:
    """Yield the limits of the control groups of a process and of those above them, in cores. Versions 1 and 2."""
    with suppress(OSError):
        for line in groups.read_text().splitlines():
            # A line of version 1 names its controllers, that of version 2 none.
            _, controllers, group = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            folder = mount / ("cpu" if controllers else "") / group.strip("/")
            # A group has at most what those above it have.
            for place in (folder, *folder.parents):
                with suppress(OSError, ValueError):
                    if controllers:
                        used = (place / "cpu.cfs_quota_us").read_text()
                        period = (place / "cpu.cfs_period_us").read_text()
                    else:
                        used, period = (place / "cpu.max").read_text().split()
                    if float(used) > 0:  # a ValueError is `max`
                        yield float(used) / float(period)
