"""Arguments that several commands take, and the ways of printing that they share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from rg_env.dump import Dump

JsonFlag = Annotated[bool, typer.Option("--json", help="Print for machines.")]
DumpPaths = Annotated[list[Path], typer.Argument(help="Dump folders or files.")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        help="Only what this holds for: task=gcd,spell_*, step=10..20, phase=eval … May be given several times."
    ),
]
ScorerTimeout = Annotated[
    float | None, typer.Option(min=0.001, help="Seconds for one answer. Default: as the run had it.")
]

_PROBLEMS_SHOWN = 10

_PIPE_WIDTH = 160
"""Columns of a table that nobody looks at directly."""


def console() -> Console:
    """Standard output, wide enough for a table where it is no terminal."""
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)


def print_remarks(dump: Dump) -> None:
    """Say on standard error what the figures cannot show and which lines were skipped."""
    problems = dump.problems
    remarks = [dump.caveat, *problems[:_PROBLEMS_SHOWN]]
    if len(problems) > _PROBLEMS_SHOWN:
        remarks.append(f"… {len(problems)} lines skipped in all; `rg-env dumps validate` lists them")
    for remark in remarks:
        if remark:
            print(f"rg-env: {remark}", file=sys.stderr)
