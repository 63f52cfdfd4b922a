"""Linux's seccomp: permanently refuse all system calls but those that a scorer needs once its modules are imported.

Invariant: a refused call fails with EPERM, as if permission were missing, or with ENOSYS if it is newer than 2019: for
that, libraries have a fallback. So a scorer that makes such a call by accident continues. A call with the numbers of
another architecture ends the process: nothing here makes one.

What is allowed reads files as far as Landlock lets it, and uses memory, clocks and descriptors that are open already.
Supported are x86_64 and aarch64; numbers and argument order are from the kernel's headers. Sources: the kernel's
Documentation/userspace-api/seccomp_filter.rst, include/uapi/linux/{filter,seccomp,audit}.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

from .machine import libc

_PR_SET_SECCOMP = 22
_MODE_FILTER = 2

_RET_ALLOW, _RET_ERRNO, _RET_KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _JEQ, _JGE, _JSET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in `struct seccomp_data`; an argument's low word comes first

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine → column of the tables below, and the kernel's identifier of the architecture."""
_X32 = 0x40000000
"""On x86_64, numbers from here on are the same calls with 32-bit pointers."""
_FIRST_NEW = 424
"""Calls from here on have the same numbers on every architecture."""

# fmt: off
ALLOWED: dict[str, tuple[int | None, int | None]] = {
    # descriptors that are open, such as the socket to the parent; no call here opens another socket
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67), "lseek": (8, 62),
    "close": (3, 57), "close_range": (436, 436), "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24),
    "recvfrom": (45, 207), "sendto": (44, 206), "getsockname": (51, 204), "getpeername": (52, 205),
    "getsockopt": (55, 209), "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72),
    # late imports and data files of packages; opening is below
    "stat": (4, None), "lstat": (6, None), "fstat": (5, 80), "newfstatat": (262, 79), "statx": (332, 291),
    "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439), "readlink": (89, None),
    "readlinkat": (267, 78), "getdents": (78, None), "getdents64": (217, 61), "getcwd": (79, 17),
    # memory, within its limit
    "mmap": (9, 222), "munmap": (11, 215), "mremap": (25, 216), "mprotect": (10, 226), "madvise": (28, 233),
    "brk": (12, 214),
    # its own signals, locks, timers and clocks
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "sigaltstack": (131, 132),
    "alarm": (37, None), "setitimer": (38, 103), "getitimer": (36, 102), "futex": (202, 98), "sched_yield": (24, 124),
    "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "gettimeofday": (96, 169), "time": (201, None), "times": (100, 153), "restart_syscall": (219, 128),
    # facts about itself and the machine
    "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178), "getuid": (102, 174), "geteuid": (107, 175),
    "getgid": (104, 176), "getegid": (108, 177), "getrlimit": (97, 163), "getrusage": (98, 165),
    "sched_getaffinity": (204, 123), "uname": (63, 160), "sysinfo": (99, 179), "getrandom": (318, 278),
    "exit": (60, 93), "exit_group": (231, 94),
}
"""Allowed with any arguments: call → number on x86_64 and on aarch64, None if there is no such call."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
NONE_OF_BITS: dict[str, tuple[tuple[int | None, int | None], int, int]] = {
    "open": ((2, None), 1, _WRITING),
    "openat": ((257, 56), 2, _WRITING),
    "prlimit64": ((302, 261), 0, 0xFFFFFFFF),  # of itself only
}
"""Allowed if an argument has none of the bits: call → numbers, the argument's place, the bits."""
ONE_OF_VALUES: dict[str, tuple[tuple[int | None, int | None], int, tuple[int, ...]]] = {
    "fcntl": ((72, 25), 1, (0, 1, 2, 3, 1030)),  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC
    "ioctl": ((16, 29), 1, (0x5401, 0x5451)),  # TCGETS, with which Python opens files, and FIOCLEX
}
"""Allowed if an argument has one of the values: call → numbers, the argument's place, the values."""
# fmt: on


def build(machine: str | None = None) -> bytes:
    """Return the filter as a classic BPF program: instructions of 8 bytes each.

    Args:
        machine: as from `platform.machine()`; None: this one.

    Raises:
        OSError: the operating system or the architecture is not supported.
    """
    machine = machine or platform.machine()
    if sys.platform != "linux":
        raise OSError("needs Linux")
    if machine not in _ARCHITECTURES or sys.maxsize < 1 << 32:
        raise OSError(f"{machine} is not supported")
    column, architecture = _ARCHITECTURES[machine]
    allow, kill = _do(_RETURN, _RET_ALLOW), _do(_RETURN, _RET_KILL_PROCESS)
    refuse, unknown = _do(_RETURN, _RET_ERRNO | errno.EPERM), _do(_RETURN, _RET_ERRNO | errno.ENOSYS)
    program = [_do(_LOAD, _ARCH), _do(_JEQ, architecture, 1, 0), kill]
    program += [_do(_LOAD, _NR), _do(_JGE, _X32, 0, 1), kill]
    for numbers in ALLOWED.values():
        program += _if_number(numbers[column], [allow])
    for numbers, place, bits in NONE_OF_BITS.values():
        argument = _do(_LOAD, _ARGUMENTS + 8 * place)
        program += _if_number(numbers[column], [argument, _do(_JSET, bits, 0, 1), refuse, allow])
    for numbers, place, values in ONE_OF_VALUES.values():
        tests = [instruction for value in values for instruction in (_do(_JEQ, value, 0, 1), allow)]
        program += _if_number(numbers[column], [_do(_LOAD, _ARGUMENTS + 8 * place), *tests, refuse])
    return b"".join([*program, _do(_JGE, _FIRST_NEW, 0, 1), unknown, refuse])


def install(program: bytes) -> None:
    """Filter the system calls of this process for good. Needs `no_new_privs`. Raises OSError if refused."""
    instructions = ctypes.create_string_buffer(program, len(program))
    descriptor = struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions))
    if (
        libc().prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), descriptor, ctypes.c_ulong(0), ctypes.c_ulong(0))
        != 0
    ):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _if_number(number: int | None, instructions: list[bytes]) -> list[bytes]:
    """Return the instructions for one call, which end with a return; none if the architecture does not have it."""
    return [] if number is None else [_do(_JEQ, number, 0, len(instructions)), *instructions]


def _do(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Return an instruction; a jump skips this many of the following ones."""
    return struct.pack("=HBBI", code, if_true, if_false, operand)
