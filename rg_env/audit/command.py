"""The command `rg-env audit`: progress on standard error, the result on standard output."""

from __future__ import annotations

from loguru import logger
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rg_env.audit.report import render, verdict
from rg_env.audit.run import run_audit
from rg_env.output import console, print_json, print_text
from rg_env.tasks import TaskMix


def run_command(tasks: str | None, items: int, quick: bool, as_json: bool) -> int:
    """Run the audit and print the result.

    Returns:
        the exit code: 1 if an answer can gain something from a hole in a task that counts, or such a task could not be
        audited; else 0.
    """
    if tasks:
        TaskMix.parse(tasks)  # a wrong name is reported before a progress bar appears
    logger.disable("rg_env")  # answers that hang are expected here
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=console(stderr=True)) as bar:
            shown = bar.add_task("starting", total=None)
            audit = run_audit(
                tasks,
                items,
                quick,
                progress=lambda task, done, total: bar.update(
                    shown, description=task or "done", completed=done, total=total
                ),
            )
    finally:
        logger.enable("rg_env")
    if as_json:
        print_json(audit.as_dict())
    else:
        console().print(render(audit))
        print_text(f"\n{verdict(audit)}")
    return 1 if audit.failed else 0
