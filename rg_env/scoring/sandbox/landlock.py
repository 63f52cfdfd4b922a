"""Linux's Landlock: permanently restrict which files this process can access.

Invariant: the kernel refuses to a process in a `Ruleset` everything that the ruleset does not allow, as far as this
kernel's Landlock has the right (its ABI, 1 to 7 as of Linux 6.15). A further ruleset can only take rights away.

Not covered by Landlock: the result of `stat`; changes of mode, owner, times and extended attributes; sockets other than
TCP's; before Linux 6.2, truncating. `rg_env.scoring.sandbox.seccomp` covers all but the first. Source: the kernel's
Documentation/userspace-api/landlock.rst.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # the same numbers on every architecture
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1

_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_FILES_OF_ABI = {1: 13, 2: 14, 3: 15, 5: 16}
"""ABI → number of file rights, bits from 0 up: ABI 2 added REFER, 3 TRUNCATE, 5 IOCTL_DEV."""
_TCP = 0b11
"""Bind and connect, since ABI 4."""
_SCOPES = 0b11
"""Abstract sockets of, and signals to, processes outside, since ABI 6."""


class LandlockError(OSError):
    """This kernel has no Landlock, or refuses it to this process."""


def abi() -> int:
    """The version of Landlock in this kernel, at least 1.

    Raises:
        LandlockError: there is no Landlock.
    """
    if sys.platform != "linux":
        raise LandlockError("needs Linux")
    return _syscall(_CREATE, None, 0, _CREATE_RULESET_VERSION)


class Ruleset:
    """Access rights, prepared once and entered by any number of forks.

    Args:
        readable: directories (with everything below) and files that can still be read. Missing ones are skipped.
            Nothing can be written, created, renamed, removed or executed.

    Raises:
        LandlockError: there is no Landlock.
    """

    def __init__(self, readable: Iterable[str]) -> None:
        version = abi()
        files = (1 << max(count for known, count in _FILES_OF_ABI.items() if known <= version)) - 1
        attributes = struct.pack("=QQQ", files, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)
        size = 24 if version >= 6 else 16 if version >= 4 else 8
        self._fd = _syscall(_CREATE, attributes, size, 0)
        for path in readable:
            with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                self._allow_reading(path)

    def enter(self) -> None:
        """Restrict this process and its future children. Needs `no_new_privs` or CAP_SYS_ADMIN.

        Raises:
            LandlockError: the kernel refused.
        """
        _syscall(_RESTRICT, self._fd, 0)
        os.close(self._fd)

    def _allow_reading(self, path: str) -> None:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            rights = _READ_FILE | (_READ_DIR if stat.S_ISDIR(os.fstat(parent).st_mode) else 0)
            _syscall(_ADD_RULE, self._fd, _RULE_PATH_BENEATH, struct.pack("=Qi", rights, parent), 0)
        finally:
            os.close(parent)


def _syscall(number: int, *arguments: int | bytes | None) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    given = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result: int = libc.syscall(ctypes.c_long(number), *given)
    if result < 0:
        error = ctypes.get_errno()
        raise LandlockError(error, os.strerror(error))
    return result
