"""Options and output shared by several commands."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rg_env.output import console, print_error

if TYPE_CHECKING:
    from rg_env.dump import Dump

SettingArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="CONFIG.yaml | KEY=VALUE",
        help="YAML files and single settings, in any order. Later files override earlier ones, single settings "
        "override files.",
    ),
]
Imports = Annotated[
    list[str] | None, typer.Option(metavar="MODULE", help="A module with tasks of your own. Repeatable.")
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Output JSON.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
SolvedAt = Annotated[
    float | None,
    typer.Option(min=0, max=1, metavar="SCORE", help="Score from which a rollout is solved. Default: as in the run."),
]
DumpPaths = Annotated[list[Path], typer.Argument(metavar="DUMP", help="Dump folders or files.")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SQL",
        help="Condition, such as \"phase = 'eval' AND step BETWEEN 10 AND 20\" or \"task LIKE 'spell_%'\". Repeatable.",
    ),
]

_PROBLEMS_SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Options of commands that read dumps: which, and what of them."""

    paths: DumpPaths
    where: Where = None

    def open(self) -> "Dump":
        from rg_env.dump import open_run

        return open_run(*self.paths).where(self.where or [])


def print_remarks(*dumps: "Dump", biases: bool = True) -> None:
    """Print to standard error how the statistics are biased and which lines were skipped, each remark once."""
    remarks: dict[str, None] = {}
    for dump in dumps:
        caveat = [dump.caveat] if biases and dump.caveat else []
        copies = [remark for run in dump.runs for _, remark in run.copies]
        problems = dump.problems
        if len(problems) > _PROBLEMS_SHOWN:
            total = f"… {len(problems)} lines skipped in total; `rg-env dumps validate` lists them"
            problems = [*problems[:_PROBLEMS_SHOWN], total]
        remarks |= dict.fromkeys([*caveat, *dump.missing, *copies, *problems])
    for remark in remarks:
        print_error(remark)


def spinner(activity: str) -> AbstractContextManager[object]:
    """Show what is being done until the block ends, on standard error if it is a terminal."""
    screen = console(stderr=True)
    return screen.status(activity) if screen.is_terminal else nullcontext()


def import_tasks(modules: list[str] | None) -> None:
    """Import modules of `--imports`. Raises ConfigError."""
    if modules:
        from rg_env.config import RGDumpConfig
        from rg_env.user_code import import_modules

        import_modules(RGDumpConfig(imports=modules))
