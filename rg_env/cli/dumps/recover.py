from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rg_env.cli.options import JsonFlag
from rg_env.cli.progress import spinner
from rg_env.output import counted, print_json, print_line


def recover(
    path: Annotated[Path, typer.Argument(metavar="DUMP", help="Dump folder.")],
    as_json: JsonFlag = False,
) -> None:
    """Finish the dump of a run that was killed and will not be resumed, and check the result.

    Gives `.part` files their final names, cuts off torn last lines, and adds missing ledger lines, as resuming the run
    would. Exit code 1 if `rg-env dumps validate` still finds problems.

    Examples:
      rg-env dumps recover runs/my-run/dumps
    """
    from rg_env.dump.repair.recover import recover as finish
    from rg_env.dump.repair.validate import validate

    with spinner("finishing"):
        done = finish(path)
        checked = validate(path)
    left = [str(fault) for fault in checked.kept]
    if as_json:
        runs = [{"run_id": run_id, **asdict(finished)} for run_id, finished in done.items()]
        print_json({"runs": runs, "still_wrong": left})
        raise typer.Exit(int(not checked.good))
    for run_id, finished in done.items():
        print_line(
            f"run {run_id}: {counted(finished.files, 'file')} finished, {counted(finished.torn, 'torn line')} cut off, "
            f"{counted(finished.ledger_lines, 'ledger line')} added"
        )
    for fault in left:
        print_line(f"still damaged: {fault}")
    if checked.total > len(left):
        print_line(f"… and {checked.total - len(left)} more")
    if checked.good:
        print_line("checked: no problems found")
    raise typer.Exit(int(not checked.good))
