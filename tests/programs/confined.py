"""The sandbox of a system that offers less.

python -m tests.programs.confined Landlock|seccomp|installing|enforcement|nothing '["STATEMENT", …]'

Prints each measure, with the reason if it is missing, and which statements succeed.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
import threading
from typing import Any

from rg_env.runner import child_sandbox, child_seccomp

NAMES = {"ctypes": ctypes, "os": os, "socket": socket, "threading": threading}
"""What the statements may use."""


def missing(*_: object) -> Any:
    raise OSError(38, "Function not implemented")


def take_away(measure: str) -> None:
    gone: Any = missing
    if measure == "Landlock":
        child_sandbox.landlock_abi = gone
    elif measure == "seccomp":
        child_seccomp.build = gone
    elif measure == "installing":
        child_seccomp.install = gone
    elif measure == "enforcement":
        child_seccomp.install = lambda program: None


def write(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    take_away(sys.argv[1])
    for name, why in child_sandbox.try_measures().items():
        write(f"{name}: {why}" if why else name)
    for statement in json.loads(sys.argv[2]):
        try:
            exec(statement, dict(NAMES))
        except (OSError, RuntimeError, AssertionError):
            continue
        write(f"succeeded: {statement}")
