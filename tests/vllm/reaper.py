"""python reaper.py GROUP: ends a process group once whoever holds the other end of our standard input is gone.

A pipe's end is noticed however its holder dies, kill -9 included.
"""

import os
import signal
import sys
import time

PATIENCE = 20.0


def alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def main():
    group = int(sys.argv[1])
    sys.stdin.read()
    for signum in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + PATIENCE
        if alive(group):
            os.killpg(group, signum)
        while alive(group) and time.monotonic() < deadline:
            time.sleep(0.2)


if __name__ == "__main__":
    main()
