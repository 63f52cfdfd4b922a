"""Programs that end while a scorer is open: python -m tests.runner.programs.endings HOW"""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Iterator

from rg_env.runner import Guarded, ScorerPoolError, guarded
from tests.runner.programs import functions

HOW = sys.argv[1]


def scores() -> Iterator[object]:
    with guarded("math:factorial", workers=1) as scorer:
        for number in range(100):
            yield scorer.score(number).value


class Owner:
    """Closes its scorer when it is deleted."""

    def __init__(self) -> None:
        self.scorer = guarded("math:factorial", workers=1)
        self.scorer.score(3)

    def __del__(self) -> None:
        self.scorer.close()


def first_score_at_exit(scorer: Guarded) -> None:
    try:
        scorer.score(3)
    except ScorerPoolError as error:
        print(error)
    scorer.close()


match HOW:
    case "generator":
        generator = scores()
        next(generator)
    case "object":
        owner = Owner()
    case "closed at exit, never used":
        for _ in range(2):
            atexit.register(guarded("math:factorial").close)
    case "closed at exit":
        scorer = guarded("math:factorial", workers=1)
        scorer.score(3)
        atexit.register(scorer.close)
    case "first score at exit":
        atexit.register(first_score_at_exit, guarded("math:factorial", workers=1))
    case "thread":
        scorer = guarded(functions.spin, workers=1, timeout=1000)
        threading.Thread(target=scorer.score, daemon=True).start()
        while scorer._pool._server is None:
            pass
    case "open":
        scorer = guarded("math:factorial", workers=1)
        scorer.score(3)
print("ended", flush=True)
