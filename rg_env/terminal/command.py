"""A command that runs in another process and is shown while it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rg_env.output import guard_streams, print_error
from rg_env.terminal.ending import ending
from rg_env.terminal.screen import Screen
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
    screen = Screen(name, stderr=name != "train", verbose=verbose)
    ended = supervise(work, screen)
    screen.close(clear=ended.exit_code == 2)
    if "error" in screen.facts and ended.signum is None:
        print_error(screen.facts["error"])
    if ended.exit_code != 2 and (name == "train" or ended.exit_code != 0):
        for line in ending(screen, ended.exit_code, ended.signum, args):
            screen.show(line)
    return ended
