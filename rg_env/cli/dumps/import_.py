from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rg_env.cli.base import Command, CommandGroup
from rg_env.cli.options import spinner
from rg_env.output import counted, print_error, print_line

_SHOWN = 10

import_app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    help="""Make a dump of the records of other programs.

    Examples:
      rg-env dumps import atropos data_dumps --out runs/atropos
    """,
)


@import_app.callback()
def _formats() -> None:
    pass


@import_app.command(cls=Command)
def atropos(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A file, or a folder of .jsonl files.")],
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="The dump folder, new or empty.")],
) -> None:
    """Make a dump of files that Atropos' Reasoning Gym environment saved.

    What the source lacks stays empty. Exit code 1 if a line was left out or there was none.

    Examples:
      rg-env dumps import atropos data_dumps --out runs/atropos
      rg-env dumps import atropos rollouts.jsonl --out runs/atropos
    """
    from rg_env.formats.atropos import LACKS, import_atropos

    with spinner("reading"):
        result = import_atropos(source, out)
    for line in result.left_out[:_SHOWN]:
        print_error(line)
    if result.lines_left_out > _SHOWN:
        print_error(f"… {counted(result.lines_left_out, 'line')} left out in total")
    unscored = f", {result.unscored} without a score" if result.unscored else ""
    print_line(
        f"{counted(result.groups, 'group')} with {counted(result.rollouts, 'rollout')}{unscored} of "
        f"{counted(result.runs, 'run')} in {out}. Atropos' files lack {LACKS}"
    )
    raise typer.Exit(int(bool(result.lines_left_out) or not result.groups))
