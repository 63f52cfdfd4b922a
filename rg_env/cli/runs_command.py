"""`rg-env runs`: a row for each run below a folder."""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rg_env.base.output import console, print_error, print_json, print_line, print_text
from rg_env.base.wording import counted, rate, visible
from rg_env.cli.base import CommandApp
from rg_env.cli.options import JsonFlag, reading

if TYPE_CHECKING:
    from rg_env.analysis.runs import Evaluation, ListedRun

_TASKS_SHOWN = 3


def runs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of runs. Default: runs.")] = Path("runs"),
    as_json: JsonFlag = False,
) -> None:
    """List runs: kind, when, how they ended, step, model, last evaluation, tasks.

    The newest is first, each under the path of its dump, for `rg-env dumps`. The evaluation is the share of solved
    responses with its 95% interval. Exit code 1 if there are no runs.

    Examples:
      rg-env runs
      rg-env runs other/folder --json
    """
    from rg_env.analysis.runs import list_runs

    with reading():
        runs = list_runs(folder)
    if as_json:
        print_json([run.as_dict() for run in runs])
    else:
        _print(runs)
    if not runs:
        print_error(f"no runs found below {folder}/, three levels deep: name another folder, `rg-env runs FOLDER`")
        raise typer.Exit(1)


def _print(runs: Sequence[ListedRun]) -> None:
    """Print the dump of each run, and below it its facts, with the run's id where several share a folder."""
    runs_in = Counter(run.dump for run in runs)
    for run in runs:
        facts = list(_facts(run))
        if runs_in[run.dump] > 1:
            facts.append(f"run {run.run_id}")
        facts.append(run.figures.problem)
        text = visible(" · ".join(filter(None, facts)), one_line=True)
        # Names of models and folders stay whole, so that they can be copied.
        lines = textwrap.wrap(text, console().width - 2, break_long_words=False, break_on_hyphens=False)
        print_line(shlex.quote(str(run.dump)))
        print_text(textwrap.indent("\n".join(lines), "  "))


def _facts(run: ListedRun) -> Iterator[str]:
    """Yield the facts of a run in words; "" for what is unknown."""
    # the name of most runs is that of their folder, which the line above has
    is_in_path = any(part.startswith(run.name) for part in run.dump.parts)
    yield "" if is_in_path else run.name
    yield run.kind
    yield f"{run.started or 'unknown':.16}".replace("T", " ")
    yield run.end or run.state
    if run.missing_groups:
        yield f"{counted(run.missing_groups, 'group')} missing"
    yield run.never_saved
    yield _progress(run)
    yield run.model
    if run.figures.evaluation is not None:
        yield _solved(run.figures.evaluation, run.figures.step)
    tasks = run.figures.tasks
    yield ", ".join(tasks[:_TASKS_SHOWN])
    if len(tasks) > _TASKS_SHOWN:
        yield f"{len(tasks) - _TASKS_SHOWN} more tasks"


def _progress(run: ListedRun) -> str:
    step = run.figures.step
    if run.kind not in ("", "train") or step is None:
        return counted(run.figures.groups, "group")
    if run.total_steps is None:
        return f"step {step}"
    return f"step {step} of {run.total_steps}"


def _solved(evaluation: Evaluation, last_step: int | None) -> str:
    shown = rate(evaluation.solve_rate, evaluation.solve_rate_low, evaluation.solve_rate_high)
    at_step = ""
    if evaluation.step != last_step:
        at_step = f" at step {evaluation.step}"
    return f"{shown} solved{at_step}"


commands = CommandApp("The command alone.")
commands.command()(runs)
