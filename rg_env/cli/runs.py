"""`rg-env runs`: a row for each run below a folder."""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from rg_env.cli.options import JsonFlag, spinner
from rg_env.errors import DumpError, one_line
from rg_env.output import console, counted, print_error, print_json, print_line, print_text, visible

_TASKS_SHOWN = 3


def runs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of runs. Default: runs.")] = Path("runs"),
    as_json: JsonFlag = False,
) -> None:
    """List runs: when, model, tasks, steps, last evaluation, how they ended.

    The newest is first, each under the path of its dump, for `rg-env dumps`. The evaluation is the share of solved
    responses with its 95 % interval. Exit code 1 if there are no runs.

    Examples:
      rg-env runs
      rg-env runs other/folder --json
    """
    from rg_env.dump.runs import dump_folders

    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "does not exist"
        raise DumpError(f"{folder} {problem}: name the folder of your runs, `rg-env runs FOLDER`")
    with spinner("reading"):
        dumps = dump_folders(folder)
        rows = [_row(dump, run_id) for dump in dumps for run_id in _run_ids(dump)]
    rows.sort(key=lambda row: (row["started"] or "", row["run_id"]), reverse=True)
    if as_json:
        print_json(rows)
    else:
        _print(rows)
    if not rows:
        print_error(f"no runs in {folder}: no folder in it, at most three levels deep, has a dump")
        raise typer.Exit(1)
    below = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.is_symlink()]
    without = [str(path) for path in below if not any(dump.is_relative_to(path) for dump in dumps)]
    if without and folder not in dumps:
        print_error(f"no dump in {', '.join(without)}")


def _run_ids(dump: Path) -> list[str]:
    """The runs that have a manifest or another file in a dump folder."""
    from rg_env.dump.files import list_files, runs_with_manifest

    return sorted({*runs_with_manifest(dump)} | {file.run_id for file in list_files(dump)})


def _row(dump: Path, run_id: str) -> dict[str, Any]:
    """The facts of a run: of its manifest, and of its ledger if it can be read."""
    from rg_env.dump import Run
    from rg_env.dump.files import list_files, manifest_name
    from rg_env.dump.manifest import read_manifest
    from rg_env.dump.runs import attempts_of, missing_groups, state_of

    manifest, files = read_manifest(dump, run_id), list_files(dump, run_id)
    attempts = attempts_of(manifest) or [{}]
    unknown = "damaged manifest" if (dump / manifest_name(run_id)).exists() else "no manifest"
    row: dict[str, Any] = {
        "dump": str(dump),
        "run_id": run_id,
        "started": _time(attempts[0].get("started")) or _time(f"{run_id[:15].replace('-', 'T')}Z"),
        "ended": _time(attempts[-1].get("ended")),
        "attempts": len(attempts),
        "state": state_of(dump, run_id, manifest) or unknown,
        "missing_groups": missing_groups(manifest),
        "model": Run(run_id, (), manifest).model,
        "tasks": [],
        "groups": 0,
        "step": None,
        "evaluation": None,
        "problem": "",
    }
    try:
        return row | (_figures([file.path for file in files]) if files else {})
    except DumpError as error:
        return row | {"problem": one_line(error)}


def _time(value: object) -> str | None:
    """A time of a manifest, or of a run's id, in this machine's time zone."""
    try:
        return datetime.fromisoformat(str(value)).astimezone().isoformat(timespec="seconds")
    except (ValueError, OverflowError):
        return None


def _figures(files: list[Path]) -> dict[str, Any]:
    """What the ledger says about a run. Raises DumpError if there is nothing to count."""
    import polars as pl

    from rg_env.analysis import measure, statistics
    from rg_env.dump import open_run

    dump = open_run(*files)
    measured = measure(dump)
    table = statistics(measured, "step")
    evaluations = table.filter(phase="eval").filter(pl.col("step").eq_missing(pl.col("step").max())).sort("groups")
    names = ["step", "environment", "groups", "solve_rate", "solve_rate_low", "solve_rate_high"]
    return {
        "tasks": sorted(map(str, measured.rollouts["task"].unique())),
        "groups": table["groups"].sum(),
        "step": table["step"].max(),
        "evaluation": next(evaluations.select(names).reverse().iter_rows(named=True), None),
        "problem": dump.problems[0] if dump.problems else "",
    }


def _print(rows: list[dict[str, Any]]) -> None:
    """The dump of each run, and below it the facts, with the run's id where several share a folder."""
    shared = Counter(row["dump"] for row in rows)
    for row in rows:
        facts = [*_facts(row), f"run {row['run_id']}" if shared[row["dump"]] > 1 else "", row["problem"]]
        text = visible(" · ".join(filter(None, facts)), one_line=True)
        lines = textwrap.wrap(text, console().width - 2, break_long_words=False, break_on_hyphens=False)
        print_line(shlex.quote(row["dump"]))
        print_text(textwrap.indent("\n".join(lines), "  "))


def _facts(row: Mapping[str, Any]) -> Iterator[str]:
    yield f"{row['started'] or 'unknown':.16}".replace("T", " ")
    yield row["state"]
    yield f"{counted(row['missing_groups'], 'group')} missing" if row["missing_groups"] else ""
    yield row["model"]
    yield counted(row["groups"], "group") if row["step"] is None else f"step {row['step']}"
    if evaluation := row["evaluation"]:
        low, high = evaluation["solve_rate_low"], evaluation["solve_rate_high"]
        interval = "" if low is None else f" [{low:.0%}, {high:.0%}]"
        step = "" if evaluation["step"] == row["step"] else f" at step {evaluation['step']}"
        yield f"{evaluation['solve_rate']:.0%}{interval} solved{step}"
    others = len(row["tasks"]) - _TASKS_SHOWN
    yield ", ".join(row["tasks"][:_TASKS_SHOWN]) + (f" and {others} more" if others > 0 else "")
