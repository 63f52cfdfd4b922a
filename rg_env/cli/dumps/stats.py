from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from rg_env.cli.options import DumpPaths, JsonFlag, console, print_remarks


class By(StrEnum):
    task = "task"
    step = "step"
    phase = "phase"
    outcome = "outcome"


def stats(
    paths: DumpPaths,
    by: Annotated[By, typer.Option(help="What a row of the table is.")] = By.task,
    as_json: JsonFlag = False,
) -> None:
    """What a policy learnt: scores, solve rate, format rate, per task or over the steps."""
    from rg_env.analysis import render_table, statistics
    from rg_env.dump import open_run

    dump = open_run(*paths)
    frame = statistics(dump, by=by.value)
    if as_json:
        print(frame.write_json())
    else:
        console().print(render_table(frame))
    print_remarks(dump)
