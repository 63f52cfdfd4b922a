from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rg_env.cli.base import Command, Group
from rg_env.cli.options import JsonFlag
from rg_env.cli.progress import late_bar
from rg_env.output import cell, console, new_table, print_json, print_line
from rg_env.processes import usable_cores

if TYPE_CHECKING:
    from rich.table import Table

    from rg_env.suites.importing import ImportedRun

import_app = typer.Typer(
    no_args_is_help=True,
    cls=Group,
    help="""Turn published results into a dump.

    Examples:
      rg-env dumps import reasoning-gym-eval results --out dumps/published
    """,
)


@import_app.callback()
def formats() -> None:
    """Keep the name of the format a command of its own."""


@import_app.command("reasoning-gym-eval", cls=Command)
def reasoning_gym_eval(
    path: Annotated[
        Path, typer.Argument(metavar="RESULTS", exists=True, help="A result file, a run's folder, or a folder of runs.")
    ],
    out: Annotated[Path, typer.Option(help="Empty folder for the dump. Several runs get a subfolder each.")],
    workers: Annotated[int, typer.Option(min=1, help="Number of answers scored in parallel.")] = usable_cores(),
    as_json: JsonFlag = False,
) -> None:
    """Import results of Reasoning Gym's evaluations and score them with rg_env.

    Each item is generated again from its config. If its question differs from the published one, its responses are
    imported with the status `unscorable`, and the exit code is 1.

    Examples:
      rg-env dumps import reasoning-gym-eval results/openai_o3-mini --out dumps/o3
    """
    from loguru import logger

    from rg_env.suites.importing import import_evaluations

    files = [path] if path.is_file() else path.rglob("*.json")
    logger.disable("rg_env.dump.write.commit")  # the progress of files, meant for training runs
    try:
        with late_bar("importing", sum(file.stat().st_size for file in files)) as advance:
            runs = import_evaluations(path, out, workers=workers, advance=advance)
    finally:
        logger.enable("rg_env.dump.write.commit")
    unscorable = sum(task.unscorable for run in runs for task in run.tasks.values())
    if as_json:
        print_json([asdict(run) | {score: run.mean(score) for score in _SCORES} for run in runs], default=str)
    else:
        console().print(_table(runs))
        print_line("published: as published; upstream: the installed reasoning-gym's score of the bare answer, 0 where")
        print_line("format or guard refuse it; ours: base score. All are means over tasks of scorable responses.")
        print_line(f"{unscorable} items are unscorable: their config makes another question today")
    raise typer.Exit(int(bool(unscorable)))


_SCORES = ("published", "upstream", "ours")


def _table(runs: list[ImportedRun]) -> Table:
    table = new_table(["run", "model"], ["tasks", "items", "unscorable", "responses", *_SCORES])
    for run in runs:
        counts = (
            sum(getattr(task, name) for task in run.tasks.values()) for name in ("items", "unscorable", "responses")
        )
        means = (f"{run.mean(score):.3f}" for score in _SCORES)
        table.add_row(cell(run.name), cell(run.model), str(len(run.tasks)), *map(str, counts), *means)
    return table
