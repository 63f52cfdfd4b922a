"""What is printed when a run has ended: what was learned, where the dump is, how to read it, how to continue."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rg_env.errors import RGEnvError
from rg_env.output import new_table
from rg_env.terminal.screen import Screen, short_path, since

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_MEASURES = {"solve rate": "solve_rate", "base score": "mean_base_score", "format rate": "format_rate"}


def ending(screen: Screen, exit_code: int, signum: int | None, args: Sequence[str]) -> Iterator[RenderableType]:
    """What to print after a run, line by line.

    Args:
        signum: the signal that ended it.
        args: of the command.
    """
    facts = screen.facts
    if exit_code == 0:
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
    if exit_code != 0:
        why = f"stopped by {signal.Signals(signum).name}" if signum else "failed"
        at = f"after step {facts['step']} of {facts['total']}" if "step" in facts else f"while {facts['doing']}"
        yield f"{why} {at}; {_how_to_continue(screen, args)}"


def learned(facts: Mapping[str, Any]) -> Table | None:
    """From the dump of the run: the first and the last evaluation, or the first and the last quarter of the steps.

    Returns:
        values with their confidence intervals; None if there is nothing to compare.
    """
    if "dump" not in facts:
        return None
    from rg_env.analysis import statistics
    from rg_env.dump import open_run
    from rg_env.dump.files import list_files

    dump = open_run(*(file.path for file in list_files(Path(facts["dump"]), facts["run_id"])))
    by, phase = ("step", "eval") if "evaluation" in facts else ("phase", "train")
    try:
        found = statistics(dump, by, where=[f"phase={phase}"], solved_at=facts["solved_at"])
    except RGEnvError:  # nothing can be counted
        return None
    first, last = found.row(0, named=True), found.row(-1, named=True)
    if phase == "train" and first["solve_rate_change"] is not None:
        table = new_table(["", "first quarter of the steps", "last quarter"])
        table.add_row("solve rate", _interval(first, "solve_rate_first"), _interval(first, "solve_rate_last"))
        return table
    if phase == "train" or found.height < 2:
        return None
    table = new_table(["", f"before (step {first['step']})", f"after (step {last['step']})"])
    for name, column in _MEASURES.items():
        table.add_row(name, _interval(first, column), _interval(last, column))
    return table


def _interval(row: dict[str, Any], name: str) -> str:
    value, low, high = row[name], row[f"{name}_low"], row[f"{name}_high"]
    if value is None:
        return "–"
    return f"{value:.3f}" if low is None else f"{value:.3f} [{low:.3f}, {high:.3f}]"


def _how_to_continue(screen: Screen, args: Sequence[str]) -> str:
    facts = screen.facts
    if screen.command != "train":
        return "the same command with --resume continues"
    step = facts.get("checkpoint", facts.get("resumed"))
    if step is not None:
        resume = [*(arg for arg in args if not arg.startswith("trainer.resume_mode=")), "trainer.resume_mode=latest"]
        return f"to continue from step {step}: {shlex.join(['rg-env', 'train', *resume])}"
    return "no checkpoint to continue from (trainer.ckpt_interval)" if "step" in facts else "no step was finished"
