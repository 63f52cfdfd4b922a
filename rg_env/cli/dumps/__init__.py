"""The commands `rg-env dumps …`, one module each."""

import typer

from rg_env.cli.dumps.audit import audit
from rg_env.cli.dumps.export import export_app
from rg_env.cli.dumps.imports import import_app
from rg_env.cli.dumps.recover import recover
from rg_env.cli.dumps.replay import replay
from rg_env.cli.dumps.report import report
from rg_env.cli.dumps.rescore import rescore
from rg_env.cli.dumps.show import show
from rg_env.cli.dumps.stats import stats
from rg_env.cli.dumps.validate import validate

dumps_app = typer.Typer(
    no_args_is_help=True,
    help="Analyze, check and repair the dumps of runs.\n\nExample: rg-env dumps stats dumps/sample",
)
for command in (stats, show, report, audit, validate, recover, rescore, replay):
    dumps_app.command()(command)
dumps_app.add_typer(export_app, name="export")
dumps_app.add_typer(import_app, name="import")
