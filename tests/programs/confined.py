"""The sandbox of a system that offers less.

python -m tests.programs.confined Landlock|seccomp|installing|enforcement|nothing '[[ROW, NUMBER], …]' FACTS

Prints each measure, with the reason if it is missing, and which of the attempts (`tests.runner.programs.attempts`)
succeed.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from rg_env.runner import child_sandbox, child_seccomp
from tests.runner.programs.attempts import attempt


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
    for what, number in json.loads(sys.argv[2]):
        try:
            attempt(what, number, json.loads(sys.argv[3]))
        except (OSError, RuntimeError):
            continue
        write(f"succeeded: {what} {number}")
