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
    help="""Make a dump of the rollouts of another program.

    Examples:
      rg-env dumps import trl out/completions --out runs/trl
      rg-env dumps import skyrl exports/dumped_evals --out runs/skyrl
    """,
)

Source = Annotated[Path, typer.Argument(metavar="SOURCE", help="A file, or a folder with files of the program.")]
Out = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="The dump folder, new or empty.")]


@import_app.command(cls=Command)
def atif(source: Source, out: Out) -> None:
    """Import trajectories in ATIF: a JSON file for each, or JSON Lines.

    What the source lacks stays empty and is said. Exit code 1 if a record was left out, 2 if none fits.

    Examples:
      rg-env dumps import atif jobs --out runs/harbor
    """
    _import("atif", source, out)


@import_app.command(cls=Command)
def verifiers(source: Source, out: Out) -> None:
    """Import traces.jsonl of verifiers or prime-rl.

    What the source lacks stays empty and is said. Exit code 1 if a record was left out, 2 if none fits.

    Examples:
      rg-env dumps import verifiers outputs --out runs/verifiers
    """
    _import("verifiers", source, out)


@import_app.command(cls=Command)
def trl(source: Source, out: Out) -> None:
    """Import TRL's completions_*.parquet (log_completions=True).

    What the source lacks stays empty and is said. Exit code 1 if a record was left out, 2 if none fits.

    Examples:
      rg-env dumps import trl out/completions --out runs/trl
    """
    _import("trl", source, out)


@import_app.command(cls=Command)
def skyrl(source: Source, out: Out) -> None:
    """Import evaluations that SkyRL saved (trainer.dump_eval_results=true).

    What the source lacks stays empty and is said. Exit code 1 if a record was left out, 2 if none fits.

    Examples:
      rg-env dumps import skyrl exports/dumped_evals --out runs/skyrl
    """
    _import("skyrl", source, out)


@import_app.command(cls=Command)
def verl(source: Source, out: Out) -> None:
    """Import rollouts that verl saved (trainer.rollout_data_dir or validation_data_dir).

    What the source lacks stays empty and is said. Exit code 1 if a record was left out, 2 if none fits.

    Examples:
      rg-env dumps import verl rollouts --out runs/verl
    """
    _import("verl", source, out)


@import_app.command(cls=Command)
def atropos(source: Source, out: Out) -> None:
    """Import files that Atropos' Reasoning Gym environment saved.

    What the source lacks stays empty and is said. Exit code 1 if a record was left out, 2 if none fits.

    Examples:
      rg-env dumps import atropos data_dumps --out runs/atropos
    """
    _import("atropos", source, out)


def _import(name: str, source: Path, out: Path) -> None:
    from rg_env.formats import FORMATS, import_records

    with spinner("reading"):
        result = import_records(name, FORMATS[name], source, out)
    for line in result.left_out[:_SHOWN]:
        print_error(line)
    if result.records_left_out > _SHOWN:
        print_error(f"… {counted(result.records_left_out, 'record')} left out in total")
    print_line(str(result))
    raise typer.Exit(int(bool(result.records_left_out)))
