"""What a worker cannot do: functions of ours, each of which does no harm even where nothing keeps it from that.

All that one could touch is in a folder that the test made, or is a process that the test started.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import importlib
import mmap
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

from rg_env.runner.child_sandbox import LANDLOCK, LIMITS, PRIVILEGES, SECCOMP

Facts = dict[str, Any]
LIBC = ctypes.CDLL(None, use_errno=True)


def need(is_done: object) -> None:
    """A call of C that is refused returns that, and raises nothing."""
    if not is_done:
        raise OSError("refused")


def become_owner(facts: Facts) -> None:
    """Ask for signals about one of its own descriptors in the name of another process."""
    for descriptor in range(3, 20):
        try:
            fcntl.fcntl(descriptor, 8, facts["pid"])
            return
        except PermissionError:
            raise
        except OSError:
            continue
    raise OSError("no descriptor")


def need_no_error(call: Callable[..., object], *arguments: object, refused: int | None = None) -> None:
    """Call a function of C that returns nothing; `refused`: the only error that counts."""
    ctypes.set_errno(0)
    call(*arguments)
    need(ctypes.get_errno() != refused if refused else ctypes.get_errno() == 0)


def read_only(path: str) -> int:
    return os.open(path, os.O_RDONLY)


NO_LIMIT = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
FORBIDDEN: dict[str, list[Callable[[Facts], object]]] = {
    "write, create, rename": [
        lambda facts: open(facts["path"], "w"),
        lambda facts: open(facts["path"], "a"),
        lambda facts: open(facts["path"], "r+"),
        lambda facts: open(facts["path"] + ".new", "x"),
        lambda facts: os.open(facts["path"], os.O_RDONLY | os.O_TRUNC),
        lambda facts: os.truncate(facts["path"], 0),
        lambda facts: os.unlink(facts["path"]),
        lambda facts: os.rename(facts["path"], facts["path"] + ".moved"),
        lambda facts: os.link(facts["path"], facts["path"] + ".link"),
        lambda facts: os.symlink(facts["path"], facts["path"] + ".symlink"),
        lambda facts: os.mkdir(facts["path"] + ".folder"),
        lambda facts: os.mkfifo(facts["path"] + ".fifo"),
        lambda facts: os.chmod(facts["path"], 0o400),
        lambda facts: os.utime(facts["path"], (0, 0)),
        lambda facts: os.chown(facts["path"], 1, 1),
        lambda facts: os.setxattr(facts["path"], "user.rg", b"1"),
        lambda facts: shutil.rmtree(os.path.dirname(facts["path"])),
        lambda facts: tempfile.mkdtemp(dir=os.path.dirname(facts["path"])),
        lambda facts: need(LIBC.creat(facts["path"].encode(), 0o600) >= 0),
    ],
    "read files other than": [
        lambda facts: open(facts["path"]).read(),
        lambda facts: os.listdir(os.path.dirname(facts["path"])),
        lambda facts: need(os.listdir("/proc")),
        lambda facts: open(f"/proc/{os.getppid()}/environ", "rb").read(),
        lambda facts: open("/etc/passwd").read(),
        lambda facts: os.listdir("/"),
    ],
    "use the network": [
        lambda facts: socket.create_connection(("127.0.0.1", facts["tcp"]), 2),
        lambda facts: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", facts["udp"])),
        lambda facts: socket.socket(socket.AF_UNIX).connect(facts["local"]),
        lambda facts: socket.socket(socket.AF_UNIX).bind("\0rg-env"),
        lambda facts: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
        lambda facts: socket.socket().bind(("127.0.0.1", 0)),
    ],
    "start processes": [
        lambda facts: os.fork() or os._exit(0),
        lambda facts: threading.Thread(target=len, args=("",)).start(),
        lambda facts: need(os.system("exit 0") == 0),
        lambda facts: subprocess.run([sys.executable, "-c", ""], check=True),
        lambda facts: os.posix_spawn("/bin/true", ["true"], {}),
        lambda facts: os.execv("/bin/true", ["true"]),
    ],
    "signal or trace": [
        lambda facts: os.kill(facts["pid"], 0),
        lambda facts: os.kill(os.getppid(), 0),
        lambda facts: os.killpg(os.getpgid(os.getppid()), 0),
        lambda facts: os.kill(-1, 0),
        lambda facts: os.setpriority(os.PRIO_PROCESS, facts["pid"], 19),
        lambda facts: os.sched_setaffinity(facts["pid"], [0]),
        lambda facts: resource.prlimit(facts["pid"], resource.RLIMIT_NOFILE, (64, 64)),
        lambda facts: need(LIBC.ptrace(16, facts["pid"], 0, 0) == 0),
        become_owner,
    ],
    "share memory": [
        lambda facts: socket.socketpair(),
        lambda facts: fcntl.flock(open("/dev/null"), fcntl.LOCK_SH),
        lambda facts: fcntl.lockf(open("/dev/null"), fcntl.LOCK_SH),
        lambda facts: fcntl.fcntl(read_only(facts["python"]), fcntl.F_SETLEASE, 0),
        lambda facts: fcntl.fcntl(read_only(os.path.dirname(facts["python"])), fcntl.F_NOTIFY, 1),
        lambda facts: os.pipe(),
        lambda facts: os.memfd_create("x"),
        lambda facts: need(LIBC.shmget(0, 4096, 0o600) >= 0),
        lambda facts: need(LIBC.shmctl(0, 0, None) >= 0),
        lambda facts: need(LIBC.semget(0, 1, 0o600) >= 0),
        lambda facts: need(LIBC.msgget(0, 0o600) >= 0),
        lambda facts: need(LIBC.inotify_init() >= 0),
        lambda facts: need(LIBC.inotify_init1(0) >= 0),
        lambda facts: os.fsync(read_only(facts["python"])),
        lambda facts: need(LIBC.syncfs(read_only(facts["python"])) == 0),
        lambda facts: need_no_error(LIBC.syscall, facts["sync"]),
        lambda facts: need_no_error(LIBC.shmdt, None, refused=errno.EPERM),
    ],
    "use much memory": [
        lambda facts: resource.setrlimit(resource.RLIMIT_AS, NO_LIMIT),
        lambda facts: resource.setrlimit(resource.RLIMIT_CPU, NO_LIMIT),
        lambda facts: [read_only("/dev/null") for _ in range(100)],
        lambda facts: mmap.mmap(-1, 3 << 30, mmap.MAP_PRIVATE),  # addresses, no memory
    ],
    "use root's privileges": [
        lambda facts: os.chroot("/"),
        lambda facts: os.setuid(os.getuid() + 1),
        lambda facts: os.nice(-5),
    ],
}
"""The begin of a row of docs/security.md → attempts."""
MECHANISMS = dict(zip(FORBIDDEN, (LANDLOCK, LANDLOCK, *(SECCOMP,) * 4, LIMITS, PRIVILEGES), strict=True))
"""The begin of a row → what keeps a worker from that."""


def attempt(what: str, number: int, facts: Facts) -> float:
    """Return 1.0 if the attempt succeeds. Raises what it raises."""
    FORBIDDEN[what][number](facts)
    return 1.0


# -- what is possible


def import_late() -> float:
    importlib.import_module("turtledemo")
    return float(len(open(importlib.import_module("reasoning_gym").__file__ or "").read()) > 0)


def look(path: str) -> float:
    os.stat(path)
    return 1.0


def write_to_nowhere() -> float:
    return float(os.write(1, b"x") + os.write(2, b"x"))


def error_of_call(number: int) -> float:
    ctypes.set_errno(0)
    LIBC.syscall(number, 0, 0, 0, 0)
    return float(ctypes.get_errno())


def limit_of(name: str) -> dict[str, float]:
    soft, hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))
    return {"soft": float(soft), "hard": float(hard)}


def of_environment(token: str) -> dict[str, float]:
    """What a worker has of the environment: a variable, standard input, and the seed of hashes."""
    return {
        "token": float(token in os.environ),
        "input": float(len(os.read(0, 1))),
        "hash seed": float(os.environ["PYTHONHASHSEED"]),
    }


def write_to_socket(reply: bytes, seconds: float) -> float:
    """Write to whatever is open, as if the worker did, and then wait. Without a reply, return the seconds."""
    if not reply:
        return seconds
    for descriptor in range(3, 20):
        try:
            os.write(descriptor, reply)
        except OSError:
            continue
    time.sleep(seconds)
    os._exit(0)
