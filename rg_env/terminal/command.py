"""Runs a command in another process, shows it, and says at its end what was learned, where it is, how to continue."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rg_env.errors import MissingGroupsError, RGEnvError
from rg_env.output import guard_streams, print_error
from rg_env.terminal.screen import Screen, short_path, since
from rg_env.terminal.supervisor import Ended, supervise

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_AT_THE_END = (0, MissingGroupsError.exit_code)
"""Exit codes of a run that trained to its end."""


def run_shown(name: str, work: Callable[[], object], args: Sequence[str], *, verbose: bool) -> Ended:
    """Run `work`, show it, and print what there is to say at its end; a user's error is one line.

    Args:
        name: of the command.
        args: of the command.
        verbose: show the whole log.
    """
    guard_streams()
    screen = Screen(name, verbose=verbose)
    ended = supervise(work, screen, verbose=verbose)
    screen.close(clear=ended.exit_code == 2)
    mistakes = screen.facts.get("error", "").splitlines() if ended.signum is None else []
    if ended.exit_code == MissingGroupsError.exit_code:
        for line in ending(screen, ended, args):
            screen.line(line)
    for mistake in mistakes:
        print_error(mistake)
    if ended.exit_code not in (2, MissingGroupsError.exit_code):
        for line in ending(screen, ended, args):
            screen.line(line)
    return ended


def ending(screen: Screen, ended: Ended, args: Sequence[str]) -> Iterator[RenderableType]:
    """What to print after a run, line by line."""
    facts = screen.facts
    if "finished" in facts:
        yield facts["finished"]
    elif ended.exit_code in _AT_THE_END:
        yield f"trained to step {facts.get('step', 0)} in {since(screen.began)}"
        if table := learned(facts):
            yield from ("", table, "")
    if "step" in facts and "dump" in facts:
        folder = shlex.quote(short_path(facts["dump"]))
        yield f"dump: {folder}"
        yield f"  rg-env dumps stats {folder} --by step    # what was learned"
        yield f"  rg-env dumps show {folder}               # browse the groups"
    if "log" in facts:
        yield f"log: {short_path(facts['log'])}"
    elif ended.exit_code == 1 and "error" in facts:
        yield "for the traceback, run it again with --verbose"
    if "rollouts" in facts:
        yield f"log of rollouts: {short_path(facts['rollouts'])}"
    if ended.exit_code not in _AT_THE_END:
        why = f"stopped by {signal.Signals(ended.signum).name}" if ended.signum else "failed"
        at = f"after step {facts['step']} of {facts['total']}" if "step" in facts else f"while {facts['doing']}"
        yield f"{why} {at}; {_how_to_continue(facts, args)}"


def learned(facts: Mapping[str, Any]) -> Table | None:
    """The first and the last evaluation in the dump, or all of its steps together, as `dumps stats` shows them."""
    if "dump" not in facts:
        return None
    import polars as pl

    from rg_env.analysis import statistics
    from rg_env.analysis.tables import render_table
    from rg_env.dump import open_run
    from rg_env.dump.files import list_files

    dump = open_run(*(file.path for file in list_files(Path(facts["dump"]), facts["run_id"])))
    by, phase = ("step", "eval") if "evaluation" in facts else ("phase", "train")
    try:
        found = statistics(dump.where([f"phase = '{phase}'"]).scan(), by, solved_at=facts["solved_at"])
    except RGEnvError:  # nothing can be counted
        return None
    of_environments = found.partition_by("environment", maintain_order=True)
    return render_table(pl.concat(rows[[0, -1]] if rows.height > 1 else rows for rows in of_environments))


def _how_to_continue(facts: Mapping[str, Any], args: Sequence[str]) -> str:
    step = facts.get("checkpoint", facts.get("resumed"))
    if step is not None:
        resume = [*(arg for arg in args if not arg.startswith("trainer.resume_mode=")), "trainer.resume_mode=latest"]
        return f"to continue from step {step}: {shlex.join(['rg-env', 'train', *resume])}"
    return "no checkpoint to continue from (trainer.ckpt_interval)" if "step" in facts else "no step was finished"
