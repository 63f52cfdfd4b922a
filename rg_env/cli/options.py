"""Options and output shared by several commands."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rg_env.output import console, print_error

if TYPE_CHECKING:
    from rg_env.dump import Dump

Settings = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="CONFIG.yaml | KEY=VALUE",
        help="YAML files and single settings, in any order. Later files override earlier ones, single settings "
        "override files.",
    ),
]
TaskMix = Annotated[
    str | None,
    typer.Option(
        "--tasks",
        help="Names, patterns and categories separated by commas, or a mix in YAML. Default: the default mix.",
    ),
]
Imports = Annotated[
    list[str] | None,
    typer.Option("--imports", "--import", metavar="MODULE", help="A module with tasks of your own. Repeatable."),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Output JSON.")]
Check = Annotated[
    bool, typer.Option("--check", help="Only check the settings, and print those that differ from the defaults.")
]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", help="Show the whole log, with Ray's and SkyRL's lines; with --check, all settings."),
]
DumpPaths = Annotated[list[Path], typer.Argument(metavar="DUMP", help="Dump folders or files.")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SQL",
        help="Condition, such as \"phase = 'eval' AND step BETWEEN 10 AND 20\" or \"task LIKE 'spell_%'\". Repeatable.",
    ),
]
SolvedAt = Annotated[
    float | None,
    typer.Option(min=0, max=1, metavar="SCORE", help="Score from which a rollout is solved. Default: as in the run."),
]
ScorerTimeout = Annotated[
    float | None, typer.Option(min=0.001, metavar="SEC", help="Seconds per answer. Default: as in the run.")
]

_PROBLEMS_SHOWN = 10


def print_remarks(*dumps: Dump, biases: bool = True) -> None:
    """Print to standard error how the statistics are biased and which lines were skipped, each remark once."""
    remarks: dict[str, None] = {}
    for dump in dumps:
        problems = list(map(str, dump.problems))
        more = f"… {len(problems)} lines skipped in total; `rg-env dumps validate` lists them"
        shown = [*problems[:_PROBLEMS_SHOWN], *([more] if len(problems) > _PROBLEMS_SHOWN else [])]
        copies = [remark for run in dump.runs for _, remark in run.copies]
        remarks |= dict.fromkeys([*([dump.caveat] if biases and dump.caveat else []), *dump.missing, *copies, *shown])
    for remark in remarks:
        print_error(remark)


def spinner(what: str) -> AbstractContextManager[object]:
    """Show what is being done until the block ends, on standard error if it is a terminal."""
    shown = console(stderr=True)
    return shown.status(what) if shown.is_terminal else nullcontext()


def import_tasks(modules: list[str] | None) -> None:
    """Import modules of `--imports`. Raises ConfigError."""
    if modules:
        from rg_env.config import RGDumpConfig
        from rg_env.user_code import import_modules

        import_modules(RGDumpConfig(imports=modules))
