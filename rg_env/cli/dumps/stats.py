from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rg_env.choices import By, parse_by
from rg_env.cli.options import DumpPaths, JsonFlag, SolvedAt, Where, print_remarks, spinner
from rg_env.errors import DumpError
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
    columns: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Only these statistics, separated by commas, such as solve_rate,mean_raw_score. Also with --json, "
            "--csv and --against.",
        ),
    ] = "",
    solved_at: SolvedAt = None,
    details: Annotated[
        bool, typer.Option("--details", help="Show all statistics with their confidence intervals.")
    ] = False,
    as_json: JsonFlag = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Output all statistics as CSV.")] = False,
) -> None:
    """Show solve rate, pass@k, score, format and lengths, by task or step.

    Several runs are shown side by side. With --against, the questions that both sides have are compared one by one.

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

    names = [name.strip() for name in columns.split(",") if name.strip()]
    dump = open_run(*paths).where(where or [])
    if against:
        other = open_run(*against).where(against_where or where or [])
        _compare(dump, other, by, solved_at, names, details, as_json, as_csv)
        print_remarks(dump, other)
        return
    from rg_env.analysis.stats import counts, measure, statistics, step_numbers
    from rg_env.analysis.tables import SHOWN, headline, render_counts, render_details, render_runs, render_table

    for_people = not (as_json or as_csv or details)
    wanted = [*(SHOWN if for_people else ()), *(name.removesuffix("_low").removesuffix("_high") for name in names)]
    gc.disable()  # reading makes millions of objects and no cycles: collecting would take a third of the time
    try:
        with spinner("reading"):
            measured = measure(dump, solved_at=solved_at, names=wanted or None)
    finally:
        gc.enable()
    frame, runs = statistics(measured, by), dump.names
    _check_columns(names, frame.columns[frame.columns.index("groups") :])
    trainer = step_numbers(dump) if "step" in frame.columns and (details or as_json) else {}
    if as_json or as_csv:
        rows = frame.select("run_id", frame["run_id"].replace(runs).alias("run"), *frame.columns[1:])
        rows = rows.select(*rows.columns[: rows.columns.index("groups")], *names) if names else rows
        if as_csv:
            print_csv(rows)
        else:
            print_json(_json_rows(rows, [] if names else counts(measured, by).to_dicts(), trainer))
    else:
        print_line(headline(measured, dump))
        totals = statistics(measured, By.PHASE)
        if details:
            tables = [*render_details(frame, runs, trainer)]
        elif totals["run_id"].n_unique() > 1:
            tables = [*render_runs(frame, totals, runs, console().width, names or ["solve_rate"])]
        else:
            tables = [render_table(frame, totals=totals, columns=names)]
        occurring = None if names else render_counts(counts(measured), runs)
        console().print(*tables, *([occurring] if occurring else []))
    print_remarks(dump)


def _check_columns(names: Sequence[str], known: Sequence[str]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        choices = ", ".join(name for name in known if not name.endswith(("_low", "_high")))
        raise DumpError(
            f"--columns: there is no {unknown[0]}; use {choices}, or with _low or _high the interval's ends"
        )


def _json_rows(frame: pl.DataFrame, counts: Sequence[dict[str, Any]], trainer: dict[Any, Any]) -> list[dict[str, Any]]:
    """The rows, each with its counts of violations and statuses, and with the trainer's numbers of its step."""
    rows: list[dict[str, Any]] = json.loads(frame.write_json())
    keys = [name for name in frame.columns[: frame.columns.index("groups")] if name != "run"] if counts else []
    of_row = {tuple(row[key] for key in keys): row for row in rows}
    for row in rows if counts else ():
        row |= {"violation_counts": {}, "status_counts": {}}
    for count in counts:
        of_row[tuple(count[key] for key in keys)][f"{count['kind']}_counts"][count["value"]] = count["rollouts"]
    for row in rows if trainer else ():
        row["trainer"] = trainer.get((row["run_id"], row["step"]), {}) if row["phase"] == "train" else {}
    return rows


def _compare(
    dump: Dump,
    other: Dump,
    by: str,
    solved_at: float | None,
    columns: Sequence[str],
    details: bool,
    as_json: bool,
    as_csv: bool,
) -> None:
    import polars as pl

    from rg_env.analysis.compare import compare, differing_suites, differing_tasks, flips, shared_questions
    from rg_env.analysis.stats import key_columns, measure
    from rg_env.analysis.tables import LEGEND, render_comparison

    with spinner("reading"):
        this, that = (measure(side, solved_at=solved_at, to_match=True) for side in (dump, other))
    unmatched = differing_tasks(dump, other)
    questions, questions_other, shared = shared_questions(this, that, unmatched=unmatched)
    remarks = [f"{remark}; only questions that both have are compared" for remark in differing_suites(dump, other)]
    if unmatched:
        remarks.append(f"not compared, because the task's options differ: {', '.join(unmatched)}")
    if not shared:
        raise DumpError("; ".join(["no question is in both dumps, so there is nothing to compare", *remarks]))
    levels = {tuple(key_columns(level)): level for level in (By.PHASE, by)}
    frames = [compare(this, that, level, unmatched=unmatched) for level in levels.values()]
    measures = frames[0]["measure"].unique(maintain_order=True).to_list()
    _check_columns(columns, measures)
    if columns:
        frames = [frame.filter(pl.col("measure").is_in(columns)) for frame in frames]
    flipped = flips(this, that, unmatched=unmatched)
    names = [", ".join([*side.names.values(), *(part.text for part in side.conditions)]) for side in (dump, other)]
    if as_json:
        rows = [row for frame in frames for row in json.loads(frame.write_json())]
        shown = {"this": names[0], "other": names[1], "questions_this": questions, "questions_other": questions_other}
        shown |= {"questions_shared": shared, "unmatched_tasks": unmatched, "rows": rows}
        print_json(shown | {"flips": json.loads(flipped.write_json())})
    elif as_csv:
        print_csv(pl.concat(frames, how="diagonal"))
    else:
        print_line(f"this:  {names[0]}")
        print_line(f"other: {names[1]}")
        print_line(
            f"{shared:,} questions are in both, of {questions:,} and {questions_other:,}: only these are compared"
        )
        console().print(render_comparison(*frames, measures=columns or (measures if details else ())))
        for line in LEGEND:
            print_line(line)
        _print_flips(flipped, None if details else _FLIPS_SHOWN)
    for remark in remarks:
        print_error(remark)


def _print_flips(flipped: pl.DataFrame, most: int | None) -> None:
    import polars as pl

    for title, chosen in (
        ("this side solves in at least half of its tries, and the other does not", pl.col("this") > pl.col("other")),
        (
            "the other side solves in at least half of its tries, and this one does not",
            pl.col("this") < pl.col("other"),
        ),
    ):
        questions = flipped.filter(chosen)
        if questions.is_empty():
            continue
        print_line("")
        print_line(f"{counted(questions.height, 'question')} that {title} (--where \"group_id = 'ID'\" shows one):")
        for row in questions.head(questions.height if most is None else most).iter_rows(named=True):
            print_line(f"  {row['item']} ({row['phase']}): {row['this']:.0%} against {row['other']:.0%}")
            print_line(f"    {row['group_this']}")
            print_line(f"    {row['group_other']}")
        if most is not None and questions.height > most:
            print_line(f"  … and {questions.height - most} more; --details or --json shows all")
