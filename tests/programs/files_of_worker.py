"""What a worker opens from its fork to its first score: TARGET REQUEST MODULES…, the first two as hexadecimal."""

from __future__ import annotations

import importlib
import json
import os
import sys

from rg_env.runner import server_process
from rg_env.runner.child_process import make_ready

opened: list[str] = []


def note(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open":
        opened.append(str(arguments[0]))


if __name__ == "__main__":
    target, request, *modules = sys.argv[1:]
    # As a server: it is the main module there, whose imports are those of its workers.
    for name in (server_process.__name__, *modules):
        importlib.import_module(name)
    if os.fork() == 0:
        sys.addaudithook(note)
        reply = make_ready(bytes.fromhex(target))(bytes.fromhex(request))
        print(json.dumps({"reply": reply, "opened": opened}), flush=True)
        os._exit(0)
    os.wait()
