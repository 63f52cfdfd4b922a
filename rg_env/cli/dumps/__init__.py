"""The commands `rg-env dumps …`, one module each."""

import typer

from rg_env.cli.base import Command, CommandGroup
from rg_env.cli.dumps.export import export_app
from rg_env.cli.dumps.import_ import import_app
from rg_env.cli.dumps.report import report
from rg_env.cli.dumps.rescore import rescore
from rg_env.cli.dumps.show import show
from rg_env.cli.dumps.signs import signs
from rg_env.cli.dumps.stats import stats
from rg_env.cli.dumps.validate import validate

dumps_app = typer.Typer(
    no_args_is_help=True,
    cls=CommandGroup,
    help="""Analyze, export and check dumps.

    A dump is the set of files with recorded rollouts that runs write to a folder.

    Examples:
      rg-env dumps stats runs/quickstart/dumps
      rg-env dumps show runs/quickstart/dumps --where "outcome = 'all_failed'"
    """,
)
for command in (stats, show, report, signs, validate, rescore):
    dumps_app.command(cls=Command)(command)
dumps_app.add_typer(export_app, name="export")
dumps_app.add_typer(import_app, name="import")
