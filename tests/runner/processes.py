"""Looking at processes through /proc. Imports nothing heavy: scripts that tests start use it too."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def living_children(pid: int) -> set[int]:
    """Children of a process that are not zombies."""
    return {child for child, (parent, state) in _processes().items() if parent == pid and state != "Z"}


def zombies_of(pid: int) -> set[int]:
    """Children of a process that have ended and that it has not reaped."""
    return {child for child, (parent, state) in _processes().items() if parent == pid and state == "Z"}


def is_alive(pid: int) -> bool:
    return _processes().get(pid, (0, "Z"))[1] != "Z"


def wait_until(condition: Callable[[], object], seconds: float = 100.0) -> bool:
    """Whether the condition came true. So long, because on a busy machine a server starts in half a minute."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def fork_server_pid() -> int:
    """The pid of the newest fork server of this process."""
    return max(
        fork_servers(), key=lambda pid: int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    )


def fork_servers() -> set[int]:
    """The living fork servers of this process."""
    return {pid for pid in living_children(os.getpid()) if b".server_process" in _command_of(pid)}


def servers_and_workers_of(pid: int) -> set[int]:
    """Those that a process has started, also after it has ended: their command line names it."""
    processes = {child: _command_of(child).split(b"\0") for child, (_, state) in _processes().items() if state != "Z"}
    name = str(pid).encode()
    return {child for child, command in processes.items() if name in command and b"server_process" in b"".join(command)}


def _command_of(pid: int) -> bytes:
    """Its command line; empty if it has ended, and was reaped, since it was seen."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _processes() -> dict[int, tuple[int, str]]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            found[int(entry.name)] = (int(parent), state)
    return found
