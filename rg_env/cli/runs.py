from __future__ import annotations

import shlex
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from rg_env.cli.options import JsonFlag, spinner
from rg_env.errors import DumpError, one_line
from rg_env.output import console, counted, print_error, print_json, print_line, print_text, visible

_TASKS = 3
"""So many tasks of a run are named."""


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
        what = "is a file" if folder.exists() else "does not exist"
        raise DumpError(f"{folder} {what}: name the folder of your runs, `rg-env runs FOLDER`")
    with spinner("reading"):
        dumps = dump_folders(folder)
        rows = [row for dump in dumps for row in _rows(dump)]
    rows.sort(key=lambda row: (row["started"] or "", row["run_id"]), reverse=True)
    if as_json:
        print_json(rows)
    else:
        _print(rows)
    if not rows:
        print_error(f"no runs in {folder}: no folder in it, at most three levels deep, has a dump")
        sys.exit(1)
    below = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.is_symlink()]
    without = [str(path) for path in below if not any(dump.is_relative_to(path) for dump in dumps)]
    if without and folder not in dumps:
        print_error(f"no dump in {', '.join(without)}")


def _rows(folder: Path) -> list[dict[str, Any]]:
    """The facts of each run in a dump folder: of its manifest, and of its ledger if it can be read."""
    from rg_env.dump import Run
    from rg_env.dump.files import list_files, manifest_name
    from rg_env.dump.manifest import read_manifest
    from rg_env.dump.runs import attempts_of, missing_groups, state_of

    prefix, _, suffix = manifest_name("\n").partition("\n")
    run_ids = {path.name.removeprefix(prefix).removesuffix(suffix) for path in folder.glob(f"{prefix}*{suffix}")}
    rows = []
    for run_id in sorted(run_ids | {file.run_id for file in list_files(folder)}):
        manifest = read_manifest(folder, run_id)
        attempts = attempts_of(manifest) or [{}]
        unknown = "damaged manifest" if (folder / manifest_name(run_id)).exists() else "no manifest"
        row: dict[str, Any] = {
            "dump": str(folder),
            "run_id": run_id,
            "started": _time(attempts[0].get("started")) or _time(f"{run_id[:15].replace('-', 'T')}Z"),
            "ended": _time(attempts[-1].get("ended")),
            "attempts": len(attempts),
            "state": state_of(folder, run_id, manifest) or unknown,
            "missing_groups": missing_groups(manifest),
            "model": Run(run_id, (), manifest).model,
            "tasks": [],
            "groups": 0,
            "step": None,
            "evaluation": None,
            "problem": "",
        }
        if files := list_files(folder, run_id):
            try:
                row |= _figures([file.path for file in files])
            except DumpError as error:
                row["problem"] = one_line(error)
        rows.append(row)
    return rows


def _time(value: object) -> str | None:
    """A time of a manifest, or of a run's id, in this machine's time zone."""
    try:
        return datetime.fromisoformat(str(value)).astimezone().isoformat(timespec="seconds")
    except (ValueError, OverflowError):
        return None


def _figures(files: list[Path]) -> dict[str, Any]:
    import polars as pl

    from rg_env.analysis import measure, statistics
    from rg_env.dump import open_run

    dump = open_run(*files)
    try:
        measured = measure(dump)
    except DumpError as error:
        raise DumpError(dump.problems[0] if dump.problems else error) from None
    table = statistics(measured, "step")
    evaluations = table.filter(phase="eval").filter(pl.col("step").eq_missing(pl.col("step").max()))
    names = ["step", "environment", "groups", "solve_rate", "solve_rate_low", "solve_rate_high"]
    return {
        "tasks": sorted(map(str, measured.rollouts["task"].unique())),
        "groups": table["groups"].sum(),
        "step": table["step"].max(),
        "evaluation": evaluations.sort("groups").select(names).to_dicts()[-1] if evaluations.height else None,
        "problem": str(dump.problems[0]) if dump.problems else "",
    }


def _print(rows: list[dict[str, Any]]) -> None:
    """The dump of each run, and below it the facts, with the run's id where several share a folder."""
    shared = Counter(row["dump"] for row in rows)
    for row in rows:
        facts = [*_facts(row), f"run {row['run_id']}" if shared[row["dump"]] > 1 else "", row["problem"]]
        text = visible(" · ".join(filter(None, facts)), one_line=True)
        print_line(shlex.quote(row["dump"]))
        lines = textwrap.wrap(text, console().width - 2, break_long_words=False, break_on_hyphens=False)
        print_text(textwrap.indent("\n".join(lines), "  "))


def _facts(row: dict[str, Any]) -> Iterator[str]:
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
    more = f" and {len(row['tasks']) - _TASKS} more" if len(row["tasks"]) > _TASKS else ""
    yield ", ".join(row["tasks"][:_TASKS]) + more
