"""Functions for the runner, among them one that an argument changes for good."""

from __future__ import annotations

import gc
import os
import random
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

seen: list[Any] = []


def remember(answer: str) -> float:
    """A careless scorer: after one answer, every other in its process is right."""
    seen.append(answer)
    return 1.0 if "remember" in seen else 0.0


def spin() -> float:
    while True:
        pass


def count_calls() -> float:
    seen.append(None)
    return float(len(seen))


def draw() -> float:
    return random.random()


def double(number: float) -> float:
    return 2.0 * number


def no_memory_once(marker: str) -> float:
    """2.0, but raises the first time that it is called with this path."""
    path = Path(marker)
    if not path.exists():
        path.touch()
        raise MemoryError
    return 2.0


def nap(seconds: float) -> float:
    time.sleep(seconds)
    return 1.0


def wait_for_thread(seconds: float) -> float:
    thread = threading.Thread(target=time.sleep, args=(seconds,))
    thread.start()
    thread.join()
    return 1.0


def wait_for_child(seconds: float) -> float:
    subprocess.run(["sleep", str(seconds)], check=True)
    return 1.0


def act(how: str, value: float) -> float:
    """The value, unless it is told to do something that its neighbors in a message should not notice."""
    match how:
        case "die":
            os._exit(3)
        case "spin":
            spin()
        case "sleep":
            time.sleep(10**6)
        case "nap":
            time.sleep(0.2)
        case "work":
            end = time.process_time() + 0.02
            while time.process_time() < end:
                pass
        case "say more":
            # In the worker, whose only socket is that to the caller.
            for each in gc.get_objects():
                if isinstance(each, socket.socket):
                    each.sendall(b"99.0\n")
            time.sleep(0.1)
        case "say nothing":
            # What is sent next goes nowhere.
            socket.socket.sendall = lambda *_: delattr(socket.socket, "sendall")  # type: ignore[method-assign]
    return value


def raise_terminal_codes() -> float:
    raise ValueError("\x1b[2Jred")
