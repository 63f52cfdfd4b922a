"""Linux's Landlock: take away from this process the right to touch files, for good.

Invariant: whatever a `Ruleset` does not allow is refused by the kernel to whoever entered it, as far as this kernel's
Landlock knows the right (its ABI, 1 to 7 as of Linux 6.15); each layer can only take away.

Not covered by Landlock: what `stat` tells, changes of mode, owner, times and extended attributes, and sockets other
than TCP's. All but the first are what `rg_env.scoring.sandbox.seccomp` is for. Source: the kernel's
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
"""How many of the rights on files, bits from 0 up, an ABI knows: 2 brought REFER, 3 TRUNCATE, 5 IOCTL_DEV."""
_TCP = 0b11
"""Bind and connect, from ABI 4 on."""
_SCOPES = 0b11
"""Abstract sockets and signals of processes outside, from ABI 6 on."""


class LandlockError(OSError):
    """This kernel has no Landlock, or refuses it here."""


def abi() -> int:
    """The version of Landlock that this kernel speaks, at least 1.

    Raises:
        LandlockError: it speaks none.
    """
    if sys.platform != "linux":
        raise LandlockError("needs Linux")
    return _syscall(_CREATE, None, 0, _CREATE_RULESET_VERSION)


class Ruleset:
    """Rights prepared once and entered by any number of forks.

    Args:
        readable: directories and files that may still be read, with all that is below. Those that do not exist are
            passed over. Nothing may be written, made, renamed, removed or executed.

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
        """Restrict this process and those it will start. Needs `no_new_privs` or CAP_SYS_ADMIN.

        Raises:
            LandlockError: the kernel refused.
        """
        _syscall(_RESTRICT, self._fd, 0)
        self.close()

    def close(self) -> None:
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
