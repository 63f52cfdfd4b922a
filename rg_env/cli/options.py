"""Options and output shared by several commands."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rg_env.base.errors import ConfigError
from rg_env.base.output import console, print_error

if TYPE_CHECKING:
    from rg_env.dump import Dump

_OPERATORS = {"=", "==", "!=", "<>", "<", ">", "<=", ">=", "AND", "OR", "NOT", "IN", "LIKE"}
"""Words of a condition, which become words of the command if its quotes are forgotten."""
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
Tasks = Annotated[
    str | None,
    typer.Option(metavar="MIX|RECIPE.yaml", help="A task mix, or a recipe that has one, with files of questions."),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Output JSON.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
SolvedAt = Annotated[
    float | None,
    typer.Option(min=0, max=1, metavar="SCORE", help="Score from which a rollout is solved. Default: as in the run."),
]
DumpPaths = Annotated[
    list[Path], typer.Argument(metavar="DUMP", help="Dump folders or files, or the names of runs in the folder runs.")
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SQL",
        help="Condition, such as \"phase = 'eval' AND step BETWEEN 10 AND 20\" or \"task LIKE 'spell_%'\". Repeatable.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Options of commands that read dumps: which, and what of them."""

    paths: DumpPaths
    where: Where = None

    @cached_property
    def dumps(self) -> list[Path]:
        """The dumps that `paths` mean."""
        return locate_dumps(self.paths)

    def open(self) -> "Dump":
        from rg_env.dump import open_run

        return open_run(*self.dumps).where(self.where or [])


def locate_dumps(paths: Iterable[Path]) -> list[Path]:
    """Find the dumps that somebody means by paths. Says on standard error which, where it is not what was typed."""
    from rg_env.dump.locate import locate

    dumps = []
    for path in paths:
        if not os.path.exists(path) and (hint := _no_path(str(path))):
            raise ConfigError(hint)
        dump = locate(path)
        if dump != path:
            print_error(f"reading {dump}")
        dumps.append(dump)
    return dumps


def _no_path(word: str) -> str:
    """Say what a word was meant to be that stands in the place of a dump; empty if it may be one."""
    if word.upper() in _OPERATORS:
        return f"{word!r} is not a dump: put the whole condition in double quotes, --where \"phase = 'eval'\""
    from rg_env.analysis.stats import STATISTICS
    from rg_env.base.choices import By

    columns = {*(each.name for each in STATISTICS), *(by.value for by in By)}
    if word.rstrip(",") in columns:
        return f"{word!r} is a column, not a dump: write a list without spaces, such as --by task,step"
    return ""


def print_remarks(*dumps: "Dump", texts: bool = True) -> None:
    """Print to standard error what is missing, corrupt or duplicate, each remark once.

    Args:
        texts: False if only the ledger was asked for.
    """
    remarks: dict[str, None] = {}  # a set that keeps the order
    for dump in dumps:
        remarks |= dict.fromkeys(dump.findings(texts=texts).summary())
    for remark in remarks:
        print_error(remark)


def spinner(activity: str) -> AbstractContextManager[object]:
    """Show what is being done until the block ends, on standard error if it is a terminal."""
    screen = console(stderr=True)
    if screen.is_terminal:
        return screen.status(activity)
    return nullcontext()


@contextmanager
def reading(activity: str = "reading") -> Iterator[None]:
    """Show what is being done, as `spinner`, while a dump is read, which needs no garbage collection."""
    from rg_env.dump.contents import without_collecting

    with spinner(activity), without_collecting():
        yield


def show_warnings(**options: Any) -> None:
    """Let loguru write warnings to standard error, a line each, never with the values of variables."""
    from loguru import logger

    def to_stderr(line: str) -> None:
        sys.stderr.write(line)  # the stream of now: a caller in this process may have replaced it since

    logger.add(to_stderr, level="WARNING", format="rg-env: {message}", diagnose=False, backtrace=False, **options)


def import_tasks(modules: list[str] | None) -> None:
    """Import modules of `--imports`, and show what is warned of their tasks. Raises ConfigError."""
    from loguru import logger

    # The handler that loguru begins with, which shows time and place in the code; absent where somebody set it up.
    with suppress(ValueError):
        logger.remove(0)
        show_warnings()
    if modules:
        from rg_env.configuration.config import RGDumpConfig
        from rg_env.configuration.user_code import import_modules

        import_modules(RGDumpConfig(imports=modules))
