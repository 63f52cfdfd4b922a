"""Prepares a function that hangs, prints the pid of its server, and waits to be killed."""

from __future__ import annotations

import threading
import time

import psutil

from rg_env.runner import guarded
from tests.runner.programs import functions

scorer = guarded(functions.nap, examples=[((600,), 1.0)])
threading.Thread(target=scorer.score, args=(0,), daemon=True).start()
while not psutil.Process().children():
    time.sleep(0.01)
print(psutil.Process().children()[0].pid, flush=True)
time.sleep(600)
