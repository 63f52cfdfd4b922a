"""A command that runs in another process and is shown while it does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from rg_env.output import guard_streams, print_error
from rg_env.terminal.display import display
from rg_env.terminal.ending import last_lines
from rg_env.terminal.state import RunState
from rg_env.terminal.supervisor import Ended, supervise


def run_shown(name: str, work: Callable[[], Any], args: Sequence[str], *, verbose: bool) -> Ended:
    """Run `work`, show it, and print what there is to say at its end; a user's error is one line.

    Args:
        name: `train`, which is shown on standard output; or `eval` or `collect`, which have a result to print there
            and are shown on standard error.
        args: of the command.
        verbose: show the whole log.
    """
    guard_streams()
    state = RunState(name, time.time())
    screen = display(state, stderr=name != "train", verbose=verbose)
    ended = supervise(work, state, screen)
    screen.close(clear=ended.exit_code == 2)
    if state.error is not None and ended.signum is None:
        print_error(state.error)
    if ended.exit_code != 2 and (name == "train" or ended.exit_code != 0):
        for line in last_lines(state, ended, args, time.time()):
            screen.line(line)
    return ended
