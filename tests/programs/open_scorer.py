"""A program with a scorer, in which a test looks for processes: python -m tests.programs.open_scorer HOW ENTRY

HOW is the name of a function below, ENTRY an item's entry as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from rg_env.base.errors import ScorerPoolError
from rg_env.configuration.config import ScorerConfig
from rg_env.scoring import Scorer, guarded, shared_scorer
from tests.runner.processes import fork_server_pid, fork_servers, living_children, wait_until
from tests.runner.programs.functions import spin

ENTRY: dict[str, Any] = json.loads(sys.argv[2])
KEPT: list[Scorer] = []
"""A scorer that only a function has would end with it."""


def score(scorer: Scorer, answer: str) -> float:
    return scorer.score_answer(ENTRY, answer).score


def idle() -> None:
    scorer = Scorer(workers=1, timeout=600)
    score(scorer, ENTRY["answer"])
    wait_with_a_child()


def scoring() -> None:
    scorer = guarded(spin, workers=1, timeout=600)
    threading.Thread(target=scorer.score, daemon=True).start()
    wait_until(lambda: fork_servers() and living_children(fork_server_pid()))
    wait_with_a_child()


def starting() -> None:
    scorer = Scorer(workers=1, timeout=600)
    threading.Thread(target=score, args=(scorer, ENTRY["answer"]), daemon=True).start()
    wait_until(fork_servers)
    wait_with_a_child()


def started_by_a_thread_that_has_ended() -> None:
    scorer = Scorer(workers=1, timeout=600)
    thread = threading.Thread(target=score, args=(scorer, ENTRY["answer"]))
    thread.start()
    thread.join()
    wait_with_a_child()


def wait_with_a_child() -> None:
    """Print the pids of a forked child, which has copies of the sockets, of the fork server and of its workers."""
    child = os.fork()
    if child == 0:
        time.sleep(600)
    server = fork_server_pid()
    print(child, server, *living_children(server), flush=True)
    time.sleep(600)


def used_by_a_forked_child() -> None:
    """A forked child leaves the scorer of its parent alone and gets its own."""
    settings = ScorerConfig(workers=1)
    scorer = shared_scorer(settings)
    assert score(scorer, ENTRY["answer"]) == 1.0
    child = os.fork()
    if child == 0:
        try:
            score(scorer, ENTRY["answer"])
        except ScorerPoolError as error:
            assert "process" in str(error)
            scorer.close()
            own = shared_scorer(settings)
            assert own is not scorer
            assert score(own, ENTRY["answer"]) == 1.0
            own.close()
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert score(scorer, ENTRY["answer"]) == 1.0


def left_open() -> None:
    scorer = Scorer(workers=1)
    score(scorer, "1/2")
    print(fork_server_pid())
    KEPT.append(scorer)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
