"""The command `rg-env audit`: progress on standard error, the result on standard output."""

from __future__ import annotations

import os

from loguru import logger
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rg_env.audit.report import markdown, render, sandbox_lines, verdict
from rg_env.audit.run import run_audit
from rg_env.output import console, print_error, print_json, print_text
from rg_env.scoring.guard import EVALUATING_TASKS
from rg_env.tasks import TaskMix
from rg_env.tasks.audited import UNAUDITED_VARIABLE
from rg_env.tasks.audited import record as record_audited
from rg_env.tasks.upstream.dataset import registered


def run_command(tasks: str | None, items: int, quick: bool, record: bool, as_markdown: bool, as_json: bool) -> int:
    """Run the audit and print the result.

    Args:
        record: record the installed scorers as the audited ones, after a full audit of all tasks without a hole.

    Returns:
        the exit code: 1 if rg_env has a hole in the default mix, or a task of it could not be audited; else 0.
    """
    os.environ[UNAUDITED_VARIABLE] = "1"  # to audit a version is to use it first
    logger.disable("rg_env")  # answers that hang are expected here
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        if tasks:
            TaskMix.parse(tasks)  # a wrong name is reported before a progress bar appears
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
        del os.environ[UNAUDITED_VARIABLE]
    if as_json:
        print_json(audit.as_dict())
    elif as_markdown:
        print_text(markdown(audit))
    else:
        console().print(render(audit))
        print_text("\n".join(["", "scorer processes on this machine:", *sandbox_lines(audit), "", verdict(audit)]))
    if record and not (audit.failed or tasks or quick):
        classes = {task: dataset_class for task, (dataset_class, _) in registered().items()}
        changed = record_audited(classes, EVALUATING_TASKS)
        print_error(f"recorded; new or changed scorers: {', '.join(changed) or 'none'}")
    return 1 if audit.failed else 0
