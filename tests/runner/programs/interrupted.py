"""Scores while a signal handler raises at random moments: python -m tests.runner.programs.interrupted COUNT"""

from __future__ import annotations

import random
import signal
import sys
from types import FrameType

from rg_env.runner import Guarded, guarded


class InterruptError(Exception):
    pass


def interrupt(signum: int, frame: FrameType | None) -> None:
    raise InterruptError


def interrupted_calls(scorer: Guarded, count: int) -> int:
    """Score until so many calls were interrupted. Returns the number of those that were not."""
    chance, interrupted, finished = random.Random(0), 0, 0
    while interrupted < count:
        try:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, 3e-3))
            assert scorer.score(3).value == 6.0
            signal.setitimer(signal.ITIMER_REAL, 0)
            finished += 1
        except InterruptError:
            interrupted += 1
    return finished


def main(count: int) -> None:
    signal.signal(signal.SIGALRM, interrupt)
    for fresh in (True, False):
        with guarded("math:factorial", workers=1, timeout=20, fresh=fresh) as scorer:
            assert scorer.score(3).value == 6.0
            finished = interrupted_calls(scorer, count // 2)
            assert scorer.score(5).value == 120.0
        print(f"fresh={fresh}: {count // 2} calls interrupted, {finished} not")


if __name__ == "__main__":
    main(int(sys.argv[1]))
