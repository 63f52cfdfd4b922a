from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rg_env.choices import By
from rg_env.cli.options import DumpPaths, JsonFlag, Where, print_remarks
from rg_env.cli.progress import reading
from rg_env.output import console, print_csv, print_json, print_line

if TYPE_CHECKING:
    import polars as pl


_COMPARED = ("solve_rate", "mean_score", "format_rate", "no_signal", "mean_response_tokens")


def stats(
    paths: DumpPaths,
    by: Annotated[By, typer.Option(help="Group rows by.")] = By.TASK,
    where: Where = None,
    against: Annotated[
        Path | None, typer.Option(help="Another dump to compare with: differences with confidence intervals.")
    ] = None,
    solved_at: Annotated[
        float, typer.Option(min=0, max=1, help="A rollout with at least this base score is solved.")
    ] = 0.99,
    details: Annotated[
        bool, typer.Option("--details", help="Show all statistics with their confidence intervals.")
    ] = False,
    as_json: JsonFlag = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Output all statistics as CSV.")] = False,
) -> None:
    """Show what a policy has learned: solve rate, pass@k, scores, format and lengths, per task or per step.

    Example: rg-env dumps stats dumps/sample --by step --where phase=train
    """
    if as_json and as_csv:
        raise typer.BadParameter("use --json or --csv, not both")
    from rg_env.analysis import (
        compare,
        headline,
        render_comparison,
        render_details,
        render_table,
        sample_of,
        statistics,
    )
    from rg_env.dump import open_run

    dump = open_run(*paths)
    conditions = where or []
    if against is not None:
        other = open_run(against)
        with reading(dump, other, frames=1):
            frame = compare(dump, other, by, where=conditions, solved_at=solved_at)
        if not _print_data(frame, as_json, as_csv):
            console().print(render_comparison(frame, None if details else _COMPARED))
        print_remarks(dump)
        print_remarks(other)
        return
    with reading(dump, frames=1):
        sample = sample_of(dump, conditions)
    frame = statistics(sample, by, solved_at=solved_at)
    if not _print_data(frame, as_json, as_csv):
        print_line(headline(sample, from_ledger=dump.caveat is None))
        if details:
            console().print(*render_details(frame))
        else:
            totals = None if by is By.PHASE else statistics(sample, "phase", solved_at=solved_at)
            console().print(render_table(frame, totals=totals))
    print_remarks(dump)


def _print_data(frame: pl.DataFrame, as_json: bool, as_csv: bool) -> bool:
    if as_json:
        print_json(json.loads(frame.write_json()))  # null for numbers that are not finite
    elif as_csv:
        print_csv(frame)
    return as_json or as_csv
