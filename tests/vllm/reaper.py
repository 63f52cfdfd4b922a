"""python reaper.py GROUP: ends a process group once the process at the other end of standard input has ended.

The end of the pipe is noticed even after kill -9.
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
