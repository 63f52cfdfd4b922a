from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rg_env.choices import By, parse_by
from rg_env.cli.options import DumpPaths, JsonFlag, Where, print_remarks
from rg_env.cli.progress import reading
from rg_env.output import console, print_csv, print_error, print_json, print_line

if TYPE_CHECKING:
    import polars as pl

    from rg_env.dump import Dump

_FLIPS_SHOWN = 5


def _check_by(text: str) -> str:
    try:
        parse_by(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return text


def stats(
    paths: DumpPaths,
    by: Annotated[
        str,
        typer.Option(
            callback=_check_by,
            metavar="KEY",
            help=f"Group rows by {', '.join(By)}, or several separated by commas.",
            autocompletion=lambda: list(By),
        ),
    ] = By.TASK.value,
    where: Where = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(metavar="DUMP", help="Compare with this dump: differences with confidence intervals. Repeatable."),
    ] = None,
    against_where: Annotated[
        list[str] | None,
        typer.Option(metavar="COND", help="Filter condition for the other dump, instead of --where. Repeatable."),
    ] = None,
    solved_at: Annotated[
        float, typer.Option(min=0, max=1, help="Base score from which a rollout counts as solved.")
    ] = 0.99,
    details: Annotated[
        bool, typer.Option("--details", help="Show all statistics with their confidence intervals.")
    ] = False,
    as_json: JsonFlag = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Output all statistics as CSV.")] = False,
) -> None:
    """Show solve rate, pass@k, scores, format and lengths, by task or step.

    Several runs are shown side by side. With --against, questions that both sides have are compared one by one.

    Examples:
      rg-env dumps stats runs/quickstart/dumps
      rg-env dumps stats dumps/sample --by step --where phase=train
      rg-env dumps stats runs/a/dumps --against runs/b/dumps
    """
    if as_json and as_csv:
        raise typer.BadParameter("use --json or --csv, not both")
    if against_where and not against:
        raise typer.BadParameter("--against-where needs --against")
    from rg_env.analysis import headline, render_details, render_runs, render_table, sample_of, speed, statistics
    from rg_env.analysis.sample import NOT_IN_TABLES
    from rg_env.dump import open_run

    dump = open_run(*paths)
    conditions = where or []
    if against:
        other = open_run(*against)
        _compare(dump, other, by, conditions, against_where or conditions, solved_at, details, as_json, as_csv)
        for remark in _different_suites(dump, other):
            print_error(remark)
        print_remarks(dump)
        print_remarks(other)
        return
    every_column = details or as_json or as_csv
    with reading(dump, frames=1):
        sample = sample_of(dump, conditions, without=() if every_column else NOT_IN_TABLES)
    frame = statistics(sample, by, solved_at=solved_at)
    names = dump.names
    if not _print_data(_with_names(frame, names), as_json, as_csv):
        print_line(headline(sample, from_ledger=dump.caveat is None, names=names))
        totals = statistics(sample, "phase", solved_at=solved_at)
        if details:
            console().print(*render_details(frame, names))
        elif totals["run_id"].n_unique() > 1:
            console().print(*render_runs(frame, totals, names))
        else:
            console().print(render_table(frame, totals=None if by == By.PHASE else totals))
            for line in speed(totals):
                print_line(line)
    print_remarks(dump)


def _compare(
    dump: Dump,
    other: Dump,
    by: str,
    where: list[str],
    other_where: list[str],
    solved_at: float,
    details: bool,
    as_json: bool,
    as_csv: bool,
) -> None:
    import polars as pl

    from rg_env.analysis import compare, flips, sample_of
    from rg_env.analysis.comparison_table import legend, render_comparison
    from rg_env.analysis.questions import differing_suites, differing_tasks

    with reading(dump, other, frames=1):
        sides = sample_of(dump, where, to_match=True), sample_of(other, other_where, to_match=True)
    unmatched = differing_tasks(dump, other)
    levels = [By.PHASE.value, *((By.CATEGORY.value, by) if by == By.TASK else () if by == By.PHASE else (by,))]
    totals, *parts = (compare(*sides, level, unmatched=unmatched, solved_at=solved_at) for level in levels)
    flipped = flips(*sides, unmatched=unmatched, solved_at=solved_at)
    names = _side_name(dump, where), _side_name(other, other_where)
    if as_json:
        rows = [row for frame in (totals, *parts) for row in json.loads(frame.write_json())]
        print_json(
            {"this": names[0], "other": names[1], "unmatched_tasks": unmatched, "rows": rows}
            | {"flips": json.loads(flipped.write_json())}
        )
        return
    if as_csv:
        print_csv(pl.concat([totals, *parts], how="diagonal"))
        return
    print_line(f"this:  {names[0]}")
    print_line(f"other: {names[1]}")
    shown = [part for part in parts if part.columns[1] != "category" or part["category"].n_unique() > 1]
    console().print(render_comparison(totals, *shown, every_measure=details))
    for line in legend(totals, *shown):
        print_line(line)
    _print_flips(flipped, None if details else _FLIPS_SHOWN)
    if remark := differing_suites(dump, other):
        print_error(f"{remark}; only questions that both have are compared one by one")
    if unmatched:
        print_error(f"not matched question by question, because the task's options differ: {', '.join(unmatched)}")


def _different_suites(dump: Dump, other: Dump) -> list[str]:
    """How the suites of both sides differ, once for each pair of suites."""
    from rg_env.suites import same_suite

    pairs = itertools.product((run.manifest for run in dump.runs), (run.manifest for run in other.runs))
    return list(dict.fromkeys(remark for pair in pairs if (remark := same_suite(*pair))))


def _print_flips(flipped: pl.DataFrame, most: int | None) -> None:
    import polars as pl

    for title, chosen in (
        ("this side only", pl.col("value") > pl.col("other")),
        ("the other side only", pl.col("value") < pl.col("other")),
    ):
        questions = flipped.filter(chosen)
        if questions.is_empty():
            continue
        print_line("")
        print_line(f"{questions.height} questions solved by {title} (`rg-env dumps show --where group_id=ID`):")
        for row in questions.head(questions.height if most is None else most).iter_rows(named=True):
            print_line(f"  {row['item']} ({row['phase']}): {row['value']:.0%} against {row['other']:.0%}")
            print_line(f"    {row['group_id']}")
            print_line(f"    {row['group_id_other']}")
        if most is not None and questions.height > most:
            print_line(f"  … and {questions.height - most} more; --details or --json shows all")


def _side_name(dump: Dump, where: list[str]) -> str:
    return ", ".join([*dump.names.values(), *where])


def _with_names(frame: pl.DataFrame, names: Mapping[str, str]) -> pl.DataFrame:
    run = frame["run_id"].replace(dict(names)).alias("run")
    return frame.select("run_id", run, *frame.columns[1:])


def _print_data(frame: pl.DataFrame, as_json: bool, as_csv: bool) -> bool:
    if as_json:
        print_json(json.loads(frame.write_json()))  # null for numbers that are not finite
    elif as_csv:
        print_csv(frame)
    return as_json or as_csv
