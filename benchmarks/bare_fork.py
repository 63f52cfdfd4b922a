"""A rival for `guarded`: a warmed process that does nothing but fork, sandbox, call and exit, for each line it reads.

    python -m benchmarks.bare_fork module:function JSON-OF-WARMING-ARGUMENTS

reads the arguments of a call as a line of JSON, and writes what the function returned. It has no deadline, no second
try, and believes what the child says.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from typing import Any

import rg_env.runner.server_process  # noqa: F401  (the same warmed process: what is loaded makes a fork slow)
from rg_env.runner.child_sandbox import Sandbox


def main(path: str, warming: str) -> None:
    """Serve calls until standard input ends."""
    module, _, name = path.partition(":")
    function = getattr(importlib.import_module(module), name)
    function(*json.loads(warming))
    sandbox = Sandbox()
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        arguments = json.loads(line)
        sys.stdout.write(f"{call_in_fork(function, arguments, sandbox)}\n")
        sys.stdout.flush()


def call_in_fork(function: Any, arguments: list[Any], sandbox: Sandbox) -> float:
    """The value of one call."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        sandbox.enter(1 << 30, 5)
        os.write(theirs, repr(float(function(*arguments))).encode())
        os._exit(0)
    os.close(theirs)
    value = os.read(ours, 100)
    os.close(ours)
    os.waitpid(pid, 0)
    return float(value)


if __name__ == "__main__":
    main(*sys.argv[1:])
