from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rg_env.choices import By, parse_by
from rg_env.cli.options import DumpPaths, JsonFlag, Where, print_remarks, spinner
from rg_env.output import console, counted, print_csv, print_error, print_json, print_line

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
        typer.Option(
            metavar="DUMP",
            help="Compare with this dump: differences with confidence intervals. Repeatable.",
        ),
    ] = None,
    against_where: Annotated[
        list[str] | None,
        typer.Option(metavar="SQL", help="Condition for the other dump, instead of --where. Repeatable."),
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

    Several runs are shown side by side. With --against, questions that both sides have are compared one by one, or runs
    if there are several on each side.

    Examples:
      rg-env dumps stats runs/quickstart/dumps
      rg-env dumps stats dumps/sample --by step --where "phase = 'train'"
      rg-env dumps stats runs/a/dumps --against runs/b/dumps
    """
    if as_json and as_csv:
        raise typer.BadParameter("use --json or --csv, not both")
    if against_where and not against:
        raise typer.BadParameter("--against-where needs --against")
    from rg_env.dump import open_run

    dump = open_run(*paths).where(where or [])
    if against:
        other = open_run(*against).where(against_where or where or [])
        _compare(dump, other, by, solved_at, details, as_json, as_csv)
        print_remarks(dump, other)
        return
    from rg_env.analysis.stats import measure_dump, statistics, step_numbers
    from rg_env.analysis.tables import headline, render_details, render_runs, render_table

    every_column = details or as_json or as_csv
    with spinner("reading"):
        found = measure_dump(dump, solved_at=solved_at, details=every_column)
    frame, names = statistics(found, by), dump.names
    trainer = step_numbers(dump) if "step" in frame.columns and (details or as_json) else {}
    with_names = frame.select("run_id", frame["run_id"].replace(names).alias("run"), *frame.columns[1:])
    if as_json:
        rows = json.loads(with_names.write_json())
        for row in rows if trainer else ():
            row["trainer"] = trainer.get((row["run_id"], row["step"]), {}) if row["phase"] == "train" else {}
        print_json(rows)
    elif as_csv:
        print_csv(with_names)
    else:
        print_line(headline(found, whole=dump.has_every_group, from_ledger=dump.caveat is None, names=names))
        totals = statistics(found, By.PHASE)
        if details:
            console().print(*render_details(frame, names, trainer))
        elif totals["run_id"].n_unique() > 1:
            console().print(*render_runs(frame, totals, names))
        else:
            console().print(render_table(frame, totals=totals))
    print_remarks(dump)


def _compare(dump: Dump, other: Dump, by: str, solved_at: float, details: bool, as_json: bool, as_csv: bool) -> None:
    import polars as pl

    from rg_env.analysis.by import key_columns
    from rg_env.analysis.compare import compare, differing_suites, differing_tasks, flips, unit_of
    from rg_env.analysis.stats import measure_dump
    from rg_env.analysis.tables import legend, render_comparison

    with spinner("reading"):
        mine, theirs = (measure_dump(side, solved_at=solved_at, to_match=True) for side in (dump, other))
    unmatched = differing_tasks(dump, other)
    levels = {tuple(key_columns(level)): level for level in (By.PHASE, *([By.CATEGORY] if by == By.TASK else []), by)}
    unit = unit_of(dump, other)
    totals, *parts = (compare(mine, theirs, level, unit=unit, unmatched=unmatched) for level in levels.values())
    flipped = flips(mine, theirs, unmatched=unmatched)
    names = [", ".join([*side.names.values(), *(one.text for one in side.conditions)]) for side in (dump, other)]
    if as_json:
        rows = [row for frame in (totals, *parts) for row in json.loads(frame.write_json())]
        shown = {"this": names[0], "other": names[1], "unit": unit, "unmatched_tasks": unmatched, "rows": rows}
        print_json(shown | {"flips": json.loads(flipped.write_json())})
    elif as_csv:
        print_csv(pl.concat([totals, *parts], how="diagonal"))
    else:
        print_line(f"this:  {names[0]}")
        print_line(f"other: {names[1]}")
        parts = [part for part in parts if part.columns[2] != "category" or part["category"].n_unique() > 1]
        console().print(render_comparison(totals, *parts, unit=unit, every_measure=details))
        for line in legend(totals, *parts, unit=unit):
            print_line(line)
        _print_flips(flipped, None if details else _FLIPS_SHOWN)
    for remark in differing_suites(dump, other):
        print_error(f"{remark}; only questions that both have are compared one by one")
    if unmatched:
        print_error(f"not matched question by question, because the task's options differ: {', '.join(unmatched)}")


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
        print_line(
            f"{counted(questions.height, 'question')} solved by {title} (--where \"group_id = 'ID'\" shows one):"
        )
        for row in questions.head(questions.height if most is None else most).iter_rows(named=True):
            print_line(f"  {row['item']} ({row['phase']}): {row['value']:.0%} against {row['other']:.0%}")
            print_line(f"    {row['group_id']}")
            print_line(f"    {row['group_id_other']}")
        if most is not None and questions.height > most:
            print_line(f"  … and {questions.height - most} more; --details or --json shows all")
