from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rg_env.cli.options import DumpPaths, SolvedAt, Where, print_remarks, spinner
from rg_env.output import print_line


def report(
    paths: DumpPaths,
    out: Annotated[Path, typer.Option(metavar="FILE", help="HTML file to write.")],
    where: Where = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    max_groups: Annotated[
        int,
        typer.Option(
            min=1, help="Maximum number of groups to browse; if there are more, a sample spread over the steps."
        ),
    ] = 5_000,
    solved_at: SolvedAt = None,
) -> None:
    """Write an HTML report with charts and a browser of groups.

    It is one file that opens without a network.

    Examples:
      rg-env dumps report dumps/sample --out report.html
      rg-env dumps report runs/a/dumps runs/b/dumps --out compare.html
    """
    from rg_env.analysis.report import write_report
    from rg_env.dump import open_run

    dump = open_run(*paths).where(where or [])
    with spinner("reading"):
        written = write_report(dump, out, force=force, max_groups=max_groups, solved_at=solved_at)
    print_line(f"{written}: {written.stat().st_size / 1e6:.1f} MB, open it in a browser")
    print_remarks(dump)
