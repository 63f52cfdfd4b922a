"""The commands `rg-env dumps …`, a module each."""

import typer

from rg_env.cli.dumps.audit import audit
from rg_env.cli.dumps.stats import stats

dumps_app = typer.Typer(no_args_is_help=True, help="Read what runs have recorded.")
dumps_app.command()(stats)
dumps_app.command()(audit)
