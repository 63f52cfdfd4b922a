"""Linux's seccomp: permanently refuse the system calls by which this process could affect anything outside it.

Invariant: a refused call fails with an error number, as if permission were missing or the kernel were older. It never
kills, so a scorer that makes such a call by accident continues. Calls that an unprivileged process cannot make anyway
are not listed, because the worker has dropped its privileges before (`rg_env.scoring.sandbox.sandbox`). Nor are those
that create, rename or remove files, which Landlock refuses on every kernel that has it.

System calls added after 2019 have the same numbers on all architectures. They are refused as unknown, except for a few
harmless ones. This excludes io_uring, which accesses files and the network without passing the filter, and all future
calls.

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
from dataclasses import dataclass

_PR_SET_SECCOMP = 22
_MODE_FILTER = 2

_RET_ALLOW, _RET_ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _JEQ, _JGE, _JSET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in `struct seccomp_data`; an argument's low word comes first

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine → column of the tables below, and the kernel's identifier of the architecture."""
_X32 = 0x40000000
"""On x86_64, numbers from here on are the same calls with 32-bit pointers."""

_FIRST_NEW = 424
_NEW_AND_HARMLESS = (436, 439, 441, 449, 451, 453, 454, 455, 456, 462)
"""close_range, faccessat2, epoll_pwait2, futex_waitv, cachestat, map_shadow_stack, futex_*, mseal."""

# fmt: off
REFUSED: dict[str, tuple[int | None, int | None]] = {
    # the network, sockets of other processes, and buffers in the kernel that count for nobody's memory
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242),
    # new processes and threads; with prctl the process could outlive its parent
    "clone": (56, 220), "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
    "unshare": (272, 97), "setns": (308, 268), "prctl": (157, 167),
    # other processes of the same user
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "kcmp": (312, 272), "setpriority": (141, 140),
    "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274),
    "sched_setaffinity": (203, 122), "ioprio_set": (251, 30), "migrate_pages": (256, 238), "move_pages": (279, 239),
    # what Landlock does not refuse: changes of mode, owner, times and attributes; before Linux 6.2 also truncating.
    # Opening files for writing is below.
    "truncate": (76, 45), "ftruncate": (77, 46), "fallocate": (285, 47), "chmod": (90, None), "fchmod": (91, 52),
    "fchmodat": (268, 53), "chown": (92, None), "lchown": (94, None), "fchown": (93, 55), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    # System V's shared memory, semaphores and queues: identifiers can be guessed, and objects outlive the process
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "shmdt": (67, 197), "semget": (64, 190),
    "semop": (65, 193), "semtimedop": (220, 192), "semctl": (66, 191), "msgget": (68, 186), "msgsnd": (69, 189),
    "msgrcv": (70, 188), "msgctl": (71, 187),
    # locks that other processes see, and watching files that cannot be read
    "flock": (73, 32), "inotify_init": (253, None), "inotify_init1": (294, 26), "inotify_add_watch": (254, 27),
    "fanotify_init": (300, 262), "fanotify_mark": (301, 263),
    # writing everybody's data to disk
    "sync": (162, 81), "syncfs": (306, 267), "fsync": (74, 82), "fdatasync": (75, 83), "sync_file_range": (277, 84),
    # other kernel objects that outlive the process
    "mq_open": (240, 180), "mq_unlink": (241, 181), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219),
    # large and often faulty parts of the kernel
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
}
# fmt: on
"""Refused with any arguments: call → number on x86_64 and on aarch64, None if there is no such call."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """Refuse a call if one argument has any of the `bits`, or is `one_of` the values."""

    numbers: tuple[int | None, int | None]
    argument: int
    bits: int = 0
    one_of: tuple[int, ...] = ()


_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_FCNTL = (8, 10, 15, 6, 7, 37, 38, 1024, 1026, 1031)
"""F_SETOWN, F_SETSIG, F_SETOWN_EX: signals through a socket; F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW, F_SETLEASE:
locks that other processes see; F_NOTIFY: watching folders; F_SETPIPE_SZ: large buffers in the kernel."""
RULES: dict[str, _Rule] = {
    "open": _Rule((2, None), 1, bits=_WRITING),
    "openat": _Rule((257, 56), 2, bits=_WRITING),
    "prlimit64": _Rule((302, 261), 0, bits=0xFFFFFFFF),  # any pid but 0, itself
    "fcntl": _Rule((72, 25), 1, one_of=_FCNTL),
    "ioctl": _Rule((16, 29), 1, one_of=(0x8901, 0x8902)),  # FIOSETOWN, SIOCSPGRP: the same
}
"""Refused with certain arguments."""


class SeccompError(OSError):
    """This system has no seccomp filters, or refuses them to this process."""


def build(machine: str | None = None) -> bytes:
    """The filter as a classic BPF program: instructions of 8 bytes each.

    Args:
        machine: as from `platform.machine()`; None: this one.

    Raises:
        SeccompError: the operating system or the architecture is not supported.
    """
    machine = machine or platform.machine()
    if sys.platform != "linux":
        raise SeccompError("needs Linux")
    if machine not in _ARCHITECTURES or sys.maxsize < 1 << 32:
        raise SeccompError(f"{machine} is not supported")
    column, architecture = _ARCHITECTURES[machine]
    refuse, unknown = _return(_RET_ERRNO | errno.EPERM), _return(_RET_ERRNO | errno.ENOSYS)
    allow = _return(_RET_ALLOW)
    program = [_load(_ARCH), _jump(_JEQ, architecture, 1, 0), refuse]
    program += [_load(_NR), _jump(_JGE, _X32, 0, 1), refuse]
    new = [_jump(_JEQ, number, 0, 1) + allow for number in _NEW_AND_HARMLESS]
    program += [_jump(_JGE, _FIRST_NEW, 0, 2 * len(new) + 1), *new, unknown]
    for numbers in REFUSED.values():
        if (number := numbers[column]) is not None:
            program += [_jump(_JEQ, number, 0, 1), refuse]
    for rule in RULES.values():
        if (number := rule.numbers[column]) is not None:
            body = b"".join([_load(_ARGUMENTS + 8 * rule.argument), *_tests(rule, refuse), allow])
            program += [_jump(_JEQ, number, 0, len(body) // 8), body]
    return b"".join([*program, allow])


def install(program: bytes) -> None:
    """Filter the system calls of this process and its future children. Needs `no_new_privs`.

    Raises:
        SeccompError: the kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    instructions = ctypes.create_string_buffer(program, len(program))
    descriptor = struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions))
    if libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), descriptor, ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        error = ctypes.get_errno()
        raise SeccompError(error, os.strerror(error))


def _tests(rule: _Rule, refuse: bytes) -> list[bytes]:
    if rule.one_of:
        return [_jump(_JEQ, value, 0, 1) + refuse for value in rule.one_of]
    return [_jump(_JSET, rule.bits, 0, 1), refuse]


def _load(offset: int) -> bytes:
    return _instruction(_LOAD, offset)


def _return(value: int) -> bytes:
    return _instruction(_RETURN, value)


def _jump(kind: int, operand: int, if_true: int, if_false: int) -> bytes:
    """Skip this many instructions; 0: continue with the next."""
    return _instruction(kind, operand, if_true, if_false)


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)
