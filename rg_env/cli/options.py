"""Options and output shared by several commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rg_env.output import print_error

if TYPE_CHECKING:
    from rg_env.dump import Dump

JsonFlag = Annotated[bool, typer.Option("--json", help="Output JSON.")]
Check = Annotated[
    bool, typer.Option("--check", help="Only check the settings and print them as YAML; missing GPUs are a warning.")
]
DumpPaths = Annotated[list[Path], typer.Argument(help="Dump folders or files.")]
Where = Annotated[
    list[str] | None,
    typer.Option(help="Filter condition, repeatable: task=gcd,spell_*, step=10..20, phase=eval …"),
]
ScorerTimeout = Annotated[float | None, typer.Option(min=0.001, help="Seconds per answer. Default: as in the run.")]

_PROBLEMS_SHOWN = 10


def print_remarks(dump: Dump) -> None:
    """Print to standard error how the statistics are biased and which lines were skipped."""
    problems = dump.problems
    remarks = [dump.caveat, *problems[:_PROBLEMS_SHOWN]]
    if len(problems) > _PROBLEMS_SHOWN:
        remarks.append(f"… {len(problems)} lines skipped in total; `rg-env dumps validate` lists them")
    for remark in remarks:
        if remark:
            print_error(remark)
